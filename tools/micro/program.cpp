#include "micro/program.h"

#include "base/error.h"
#include "comm/mpi_session.h"

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include <sstream>

namespace fullshard::micro {

namespace {

namespace po = boost::program_options;

po::options_description describe(const Program& program, Options& options) {
    const Options& defaults = program.defaults;
    po::options_description all("Options");
    auto add = all.add_options();
    add("help", "print this and end");
    add("json", po::bool_switch(&options.json), "print one JSON object a line");
    add("rounds", po::value(&options.rounds)->default_value(defaults.rounds),
        "turns of each contender");
    add("mib", po::value(&options.mib)->default_value(defaults.mib), program.mib.c_str());
    if (!program.files.empty()) {
        add("folder", po::value<std::string>()->default_value(defaults.folder.string()),
            program.files.c_str());
    }
    if (!program.sections.empty()) {
        add("only", po::value(&options.only)->default_value(""),
            fmt::format("run only the sections with this in their name: {}", program.sections)
                .c_str());
    }
    return all;
}

/// What --help prints, or nothing; then `options` are set.
std::string read_options(int argc, char** argv, const Program& program, Options& options) {
    const po::options_description description = describe(program, options);
    po::variables_map values;
    try {
        po::store(po::parse_command_line(argc, argv, description), values);
        po::notify(values);
    } catch (const po::error& error) {
        throw UsageError(
            fmt::format("{}; {} --help lists the options", error.what(), program.name));
    }
    if (values.contains("help")) {
        std::ostringstream text;
        text << program.about << "\n\n" << description;
        return text.str();
    }
    if (values.contains("folder")) options.folder = values["folder"].as<std::string>();
    if (options.rounds < 1) throw UsageError(fmt::format("--rounds {} < 1", options.rounds));
    if (options.mib < 1) throw UsageError(fmt::format("--mib {} < 1", options.mib));
    return {};
}

}  // namespace

int run_program(int argc, char** argv, const Program& program) {
    constexpr double kTimeoutS = 600.0;
    Options options;
    try {
        const std::string help = read_options(argc, argv, program, options);
        if (!help.empty()) {
            fmt::print("{}", help);
            return 0;
        }
    } catch (const Error& error) {
        fmt::print(stderr, "{}: {}\n", program.name, error.what());
        return static_cast<int>(error.exit_code());
    }
    const comm::MpiSession session(argc, argv);
    try {
        program.run(comm::Group::world(kTimeoutS), options);
    } catch (const Error& error) {
        comm::MpiSession::abort(error.what(), static_cast<int>(error.exit_code()));
    } catch (const std::exception& error) {
        comm::MpiSession::abort(error.what(), static_cast<int>(ExitCode::kRunError));
    }
    return 0;
}

}  // namespace fullshard::micro

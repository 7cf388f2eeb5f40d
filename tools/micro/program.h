// What the micro-benchmarks have in common: their options and their main function.
#pragma once

#include "comm/group.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace fullshard::micro {

/// What a user chooses.
struct Options {
    bool json = false;  ///< one object a line in place of a table
    int rounds = 15;    ///< turns of each contender
    std::int64_t mib = 32;
    std::filesystem::path folder = {};  ///< where files are made and removed
    std::string only = {};              ///< part of the names of the sections to run; empty: all

    bool wants(std::string_view section) const {
        return section.find(only) != std::string_view::npos;
    }
};

struct Program {
    std::string name;
    std::string about;          ///< what it measures, for --help
    std::string mib;            ///< what --mib is the size of
    std::string files = {};     ///< what goes into --folder; empty: there is no such option
    std::string sections = {};  ///< names for --only; empty: there is no such option
    Options defaults = {};
    std::function<void(const comm::Group& world, const Options& options)> run;
};

/// Reads the options, starts MPI and runs the program; its exit status. An error of one rank ends
/// all of them.
int run_program(int argc, char** argv, const Program& program);

}  // namespace fullshard::micro

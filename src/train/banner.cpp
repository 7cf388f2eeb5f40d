#include "train/banner.h"

#include "base/build_info.h"
#include "base/files.h"
#include "config/checks.h"
#include "train/assemble.h"
#include "train/memory_usage.h"
#include "train/place_map.h"
#include "train/planned_memory.h"
#include "train/text.h"
#include "train/versions.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string_view>

namespace fullshard::train {

namespace {

// A screen has some 40 lines; nodes and units of any number share it.
constexpr std::size_t kMostNodeLines = 16;
constexpr std::size_t kMostUnitRows = 8;

/// What the first line of each start holds and no other line does.
constexpr std::string_view kStartMark = "I FullShard ";

std::string plural(std::int64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// How the ranks of a node exchange data, where that is not what one expects.
std::string exchange_text(const RunSetup& setup) {
    const comm::Topology& topology = setup.sharded.topology();
    if (topology.nodes() == setup.sharded.world().size()) return {};
    if (!setup.start.deck.comm.node_shared)
        return "comm.node_shared = off: ranks of a node exchange messages and share no memory";
    if (!has_uneven_group(topology.node_sizes, setup.sharded.layout().shards)) return {};
    std::string sizes;
    for (const int size : topology.node_sizes)
        sizes += fmt::format("{}{}", sizes.empty() ? "" : " + ", size);
    return fmt::format(
        "nodes are uneven ({} ranks): flat plan, ranks of a node do not share memory", sizes);
}

PlannedMemory planned_memory_of(const RunSetup& setup) {
    const ShardedModel& sharded = setup.sharded;
    return planned_memory(sharded.plan().memory_sums(), setup.checkpoint_copy,
                          std::ranges::max(sharded.topology().node_sizes),
                          sharded.device() != nullptr);
}

PresentMemory present_memory_of(const RunSetup& setup) {
    PresentMemory present{.node = node_memory()};
    if (const RunDevice* device = setup.sharded.device()) present.device = device->memory();
    return present;
}

/// What computes, beside what else each rank has.
std::string device_text(const RunSetup& setup) {
    const RunDevice* device = setup.sharded.device();
    return device != nullptr ? device->describe() : "cpu, " + cpu_capability();
}

/// Who multiplies matrices, if it is not `on_cpu`.
std::string matrix_products_text(const RunSetup& setup, const std::string& on_cpu) {
    return setup.sharded.device() != nullptr ? "LibTorch on the device" : on_cpu;
}

void announce_ranks(const RunSetup& setup, Log& log) {
    log.info("{}", setup.sharded.topology().describe());
    for (const std::string& line : place_map(setup.sharded.plan().places, kMostNodeLines))
        log.info("  {}", line);
    if (const std::string text = exchange_text(setup); !text.empty()) log.info("  {}", text);
    log.info("launched by {}; device: {}, {}{} a rank", launch_text(setup.launch),
             device_text(setup), plural(setup.start.deck.kernels.threads, "compute thread"),
             setup.sharded.plan().options.progress_thread ? " and one for messages" : "");
}

void announce_model(const RunSetup& setup, Log& log) {
    const std::vector<std::string> lines = setup.sharded.describe();
    for (std::size_t i = 1; i < lines.size(); ++i) log.info("{}", lines[i]);
    std::istringstream units(setup.sharded.plan().units_text(setup.start.spec, kMostUnitRows));
    for (std::string line; std::getline(units, line);) {
        if (!line.empty()) log.info("  {}", line);
    }
    log.info("{}", memory_text(planned_memory_of(setup), present_memory_of(setup)));
    const Peak& peak = setup.peak;
    if (!peak.known()) return;
    const bool other_type = setup.start.deck.precision.param != DType::kFloat32;
    log.info("peak: {:.4g} GFLOP/s a rank ({}), {:.4g} GFLOP/s the slowest{}", peak.mean * 1e-9,
             peak.origin, peak.slowest * 1e-9,
             other_type && peak.fp32_mean > 0.0
                 ? fmt::format(", {:.4g} GFLOP/s in fp32", peak.fp32_mean * 1e-9)
                 : "");
}

void announce_data(const RunSetup& setup, Log& log) {
    const Start& start = setup.start;
    for (const std::string& line : start.datasets.description) log.info("data: {}", line);
    log.info("batch: {} sequences a step = {} a micro-batch x {} accumulated x {}",
             start.batch.global_batch, start.batch.micro_batch, start.batch.grad_accum_steps,
             plural(setup.sharded.world().size(), "rank"));
    for (const NamedValidation& part : start.datasets.validation) {
        if (!part.unigram_entropy) continue;
        log.info("held-out tokens{}: unigram entropy {:.4f} nats, the best loss without context",
                 start.datasets.validation.size() > 1 ? " of " + part.name : "",
                 *part.unigram_entropy);
    }
}

nlohmann::ordered_json to_json(const std::vector<comm::RankPlace>& places) {
    auto list = nlohmann::ordered_json::array();
    for (const comm::RankPlace& place : places) {
        list.push_back({{"rank", place.rank},
                        {"host", place.host},
                        {"node", place.node},
                        {"cpus", comm::cpu_list(place.cpus)}});
    }
    return list;
}

}  // namespace

std::int64_t starts_in(const std::filesystem::path& log) {
    if (!std::filesystem::exists(log)) return 0;
    std::int64_t count = 0;
    std::istringstream lines(read_file(log));
    for (std::string line; std::getline(lines, line);) {
        if (line.find(kStartMark) != std::string::npos) ++count;
    }
    return count;
}

std::vector<std::string> warnings_of(const RunSetup& setup) {
    const config::Deck& deck = setup.start.deck;
    std::vector<std::string> warnings = config::warnings(deck);
    const auto append = [&](const std::vector<std::string>& more) {
        warnings.insert(warnings.end(), more.begin(), more.end());
    };
    append(version_warnings());
    append(comm::placement_warnings(setup.sharded.plan().places, deck.kernels.threads));
    append(memory_warnings(planned_memory_of(setup), present_memory_of(setup)));
    return warnings;
}

void announce(const RunSetup& setup, Log& log) {
    const BuildInfo& build = build_info();
    log.info("FullShard {} ({}, {}), start {}", build.version, build.git_hash, build.build_type,
             setup.start_number);
    announce_ranks(setup, log);
    log.info("{}", libraries_text());
    log.info("matrix products: {}", matrix_products_text(setup, setup.start.gemm.description));
    announce_model(setup, log);
    announce_data(setup, log);
    if (setup.start_number > 1) {  // a new run starts a new log
        log.info("goes on after step {}; if this log tells of later steps, those were lost",
                 setup.start.progress().step);
    }
    if (setup.sharded.world().rank() != 0) return;
    for (const std::string& warning : setup.warnings) log.warn("{}", warning);
}

nlohmann::ordered_json run_record(const RunSetup& setup) {
    const config::Deck& deck = setup.start.deck;
    const ShardedModel& sharded = setup.sharded;
    nlohmann::ordered_json versions;
    for (const Component& component : components()) versions[component.name] = component.text;
    const PlannedMemory memory = planned_memory_of(setup);
    nlohmann::ordered_json record{
        {"version", build_info().version},
        {"git", build_info().git_hash},
        {"build", build_info().build_type},
        {"versions", versions},
        {"launcher", setup.launch.launcher},
        {"ranks", sharded.world().size()},
        {"node_sizes", sharded.topology().node_sizes},
        {"placement", to_json(setup.sharded.plan().places)},
        {"threads", deck.kernels.threads},
        {"device", device_text(setup)},
        {"matrix_products", matrix_products_text(setup, setup.start.gemm.gemm->description())},
        {"parameters", sharded.layout().numel()},
        {"seed", deck.run.seed},
        {"strategy", sharded.plan().strategy->name},
        {"shards", sharded.layout().shards},
        {"units", sharded.layout().units.size()},
        {"precision",
         {{"param", name_of(deck.precision.param)},
          {"reduce", name_of(deck.precision.reduce)},
          {"buffer", name_of(deck.precision.buffer)}}},
        {"micro_batch", setup.start.batch.micro_batch},
        {"grad_accum_steps", setup.start.batch.grad_accum_steps},
        {"global_batch", setup.start.batch.global_batch},
        {"memory_planned_rank", memory.host.rank},
        {"memory_planned_node", memory.host.node},
        {"warnings", setup.warnings},
        {"resumed_from_step", setup.start.progress().step}};
    if (sharded.device() != nullptr) record["memory_planned_device"] = memory.device;
    const Peak& peak = setup.peak;
    if (peak.known()) {
        record["peak_flops_per_s"] = {{"mean", peak.mean},
                                      {"slowest", peak.slowest},
                                      {"fp32_mean", peak.fp32_mean},
                                      {"origin", peak.origin}};
    }
    return record;
}

nlohmann::ordered_json start_event(const RunSetup& setup) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    nlohmann::ordered_json event{
        {"event", "start"},
        {"start", setup.start_number},
        {"unix_time", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
        {"after_step", setup.start.progress().step},
        {"command", setup.launch.command}};
    if (!setup.launch.job.empty()) {
        event["job"] = setup.launch.job;
        event["partition"] = setup.launch.partition;
        event["job_restarts"] = setup.launch.restarts;
    }
    return event;
}

}  // namespace fullshard::train

#include "doctor/doctor.h"

#include "comm/agree.h"
#include "doctor/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace fullshard::doctor {

namespace {

struct Check {
    const char* name;
    Findings (*run)(const Subject&);
    std::string_view remedy;  ///< where it fails as a whole
};

constexpr std::string_view kLaunchAgain =
    "start it again on other nodes; if it comes again, show these lines to the cluster's support";

constexpr Check kChecks[] = {
    {"launch", check_launch, kLaunchAgain},
    {"programs", check_programs, kLaunchAgain},
    {"binding", check_binding, kLaunchAgain},
    {"clocks", check_clocks, kLaunchAgain},
    {"shared memory", check_shared_memory, "set comm.node_shared = off to do without it"},
    {"node arena", check_arena,
     "enlarge the shared memory (containers: --shm-size=8g), or set comm.node_shared = off"},
    {"single copy", check_single_copy,
     "export OMPI_MCA_btl_vader_single_copy_mechanism=none before the launch"},
    {"devices", check_devices, "start it on nodes with a GPU a rank, or set device.kind = cpu"},
    {"storage", check_storage, "name a run.dir on a file system that all nodes can write"},
    {"sums", check_sums, "do not train here: try export OMPI_MCA_btl=tcp,self, or another MPI"},
    {"speed", check_speed, kLaunchAgain},
};

}  // namespace

Findings guarded(std::string_view name, std::string_view remedy,
                 const std::function<Findings()>& check) {
    try {
        return check();
    } catch (const comm::AgreedError& error) {
        return {failure(std::string(name), error.what(), "", std::string(remedy))};
    }
}

Subject subject_of(const Request& request) {
    const double limit_s = std::min(request.deck.comm.timeout_s, kMostSeconds);
    const comm::Group job = request.job.renewed("doctor", limit_s, comm::CollectiveCheck::kOff);
    const auto ranks_per_node = static_cast<int>(request.deck.topology.ranks_per_node);
    return {.request = request,
            .job = job,
            .topology = comm::find_topology(job, ranks_per_node),
            .host = job.split_by_shared_memory(),
            .limit_s = limit_s};
}

bool examine(const Request& request, const std::function<void(const std::string&)>& print) {
    const Subject subject = subject_of(request);
    const double limit_s = subject.limit_s;
    const bool speaks = subject.job.rank() == 0;
    subject.job.ledger().allow(2 * limit_s);
    std::array<std::int64_t, 3> count{};
    for (const Check& check : kChecks) {
        subject.job.ledger().enter(check.name);
        Findings findings;
        try {
            findings = guarded(check.name, check.remedy, [&] { return check.run(subject); });
        } catch (const CommunicationError& error) {
            if (speaks) {
                print(to_text(failure(check.name, error.what(), "an answer of every rank",
                                      std::string(check.remedy))));
            }
            throw;
        }
        if (!speaks) continue;
        for (const Finding& finding : findings) {
            ++count[static_cast<std::size_t>(finding.grade)];
            print(to_text(finding));
        }
    }
    if (speaks) {
        print(
            fmt::format("doctor: {} ok, {} to look at, {} failed\n", count[0], count[1], count[2]));
    }
    subject.job.all_reduce(count, comm::Reduction::kSum);
    return count[static_cast<std::size_t>(Grade::kFailure)] == 0;
}

}  // namespace fullshard::doctor

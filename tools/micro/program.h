// What the micro-benchmarks have in common: their options and their main function.
#pragma once

#include "comm/group.h"

#include <cstdint>
#include <functional>
#include <string>

namespace fullshard::micro {

/// What a user chooses.
struct Options {
    bool json = false;  ///< one object a line in place of a table
    int rounds = 15;    ///< turns of each contender
    std::int64_t mib = 32;
};

struct Program {
    std::string name;
    std::string about;  ///< what it measures, for --help
    std::string mib;    ///< what --mib is the size of
    Options defaults;
    std::function<void(const comm::Group& world, const Options& options)> run;
};

/// Reads the options, starts MPI and runs the program; its exit status. An error of one rank ends
/// all of them.
int run_program(int argc, char** argv, const Program& program);

}  // namespace fullshard::micro

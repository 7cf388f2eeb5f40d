// Writes the documentation of all keys to the file named on the command line.
#include "base/files.h"
#include "config/render.h"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    try {
        fullshard::write_file_atomically(argv[1], fullshard::config::keys_markdown());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}

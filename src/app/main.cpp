// fullshard: the program with the models that FullShard brings along.
#include "app/program.h"

int main(int argc, char** argv) {
    return fullshard::app::run_program(argc, argv);
}

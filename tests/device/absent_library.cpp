// See needy_module.cpp.
extern "C" int fullshard_absent() {
    return 1;
}

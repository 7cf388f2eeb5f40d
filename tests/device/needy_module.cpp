// A module that is linked to a library which is found when it is built but not when it is loaded.
extern "C" int fullshard_absent();
extern "C" int fullshard_needy() {
    return fullshard_absent();
}

// A device module as another version of FullShard would have it.
extern "C" const void* fullshard_cuda_build() {
    return "FullShard 0.0.1";
}

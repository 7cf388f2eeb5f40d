// A library whose product returns dnnl_unimplemented.
#include <cstdint>

extern "C" int dnnl_sgemm(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*,
                          std::int64_t, const float*, std::int64_t, float, float*, std::int64_t) {
    return 3;
}

// A library that says it is done and computes nothing, as one does whose functions were bound to
// those of another version.
#include <cstdint>

extern "C" {

int dnnl_sgemm(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*,
               std::int64_t, const float*, std::int64_t, float, float*, std::int64_t) {
    return 0;
}

void cblas_sgemm(int, int, int, int, int, int, float, const float*, int, const float*, int, float,
                 float*, int) {}
}

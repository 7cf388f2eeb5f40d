// Refuses large allocations in a test binary whose inputs are small: whoever asks for more has
// believed a damaged header. Linking it replaces the global operator new; in a file of its own, so
// that no caller is compiled with only half of the replacement in sight.
#include <cstddef>
#include <cstdlib>
#include <new>

void* operator new(std::size_t size) {
    constexpr std::size_t kMost = 4 << 20;
    void* const memory = size > kMost ? nullptr : std::malloc(size == 0 ? 1 : size);
    if (!memory) throw std::bad_alloc();
    return memory;
}

void operator delete(void* memory) noexcept {
    std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

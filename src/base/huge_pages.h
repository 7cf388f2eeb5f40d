// Pages that cover more memory with one entry of the TLB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fullshard {

/// What memory must be aligned to for all of it to be in huge pages (x86-64, and AArch64 with 4 KiB
/// pages).
inline constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

/// Asks for huge pages where whole ones fit into `memory`, which nobody has touched so far: no page
/// outside it is taken. Only a hint: where the system refuses, small pages do the same work.
void advise_huge_pages(std::span<std::byte> memory);

}  // namespace fullshard

// ZIP archives whose large members are written by others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::checkpoint {

/// Lays out an archive of members that are stored as they are, each beginning at a multiple of 64
/// bytes, and makes the bytes around them. Sizes and offsets beyond 32 bits, and more than 65535
/// members, use the ZIP64 extensions (PKWARE's APPNOTE 4.3 to 4.5).
class ZipLayout {
  public:
    /// Names are ASCII. Returns where the member's content begins.
    std::int64_t add(std::string name, std::int64_t bytes);
    std::int64_t bytes() const;

    /// What stands directly before a member's content. `crc` is the content's CRC-32.
    struct Header {
        std::int64_t offset = 0;
        std::string bytes;
    };
    Header header(std::size_t member, std::uint32_t crc) const;
    /// The central directory: everything behind the last member. One CRC for each member.
    Header directory(const std::vector<std::uint32_t>& crcs) const;

  private:
    struct Member {
        std::string name;
        std::int64_t header_offset = 0;
        std::int64_t offset = 0;
        std::int64_t bytes = 0;
    };
    std::vector<Member> members_;
    std::int64_t end_ = 0;  ///< of the last member's content
};

}  // namespace fullshard::checkpoint

// Python's pickle, protocol 2, as far as a file of tensors needs it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fullshard::checkpoint {

/// Appends operations of the pickle machine (CPython's pickletools names them). Nothing is
/// memoised: the reader needs no memory of names that repeat.
class Pickle {
  public:
    Pickle();
    /// The name `attribute` of a Python module.
    Pickle& global(std::string_view module, std::string_view attribute);
    Pickle& text(std::string_view utf8);
    Pickle& integer(std::int64_t value);
    Pickle& no();
    Pickle& mark();
    /// A tuple of everything since the last mark.
    Pickle& tuple();
    Pickle& dict();
    /// Puts the keys and values since the last mark into the dict below it.
    Pickle& set_items();
    /// Replaces a callable and a tuple by the call's result.
    Pickle& call();
    /// Replaces a tuple by the object that it stands for outside of the pickle.
    Pickle& persistent();
    /// Ends the program.
    std::string finish();

  private:
    std::string program_;
};

}  // namespace fullshard::checkpoint

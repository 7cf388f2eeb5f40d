// What must go on while a rank waits for something else.
#pragma once

#include <functional>
#include <list>

namespace fullshard::comm {

/// MPI moves large messages, and collectives of several phases start their next one, only inside
/// calls of this process. A rank that waits for one thing must therefore let all others advance:
/// ranks of two nodes could otherwise wait for each other in a circle. Everything that waits on
/// behalf of one store shares one of these.
class Progress {
  public:
    /// Goes as far as it can without waiting; whether anything is still under way.
    using Advance = std::function<bool()>;

    /// Takes part until the registration ends. The Progress must outlive it.
    class Registration {
      public:
        Registration() = default;
        Registration(Progress& progress, Advance advance) : progress_(&progress) {
            position_ = progress.all_.insert(progress.all_.end(), std::move(advance));
        }
        Registration(const Registration&) = delete;
        Registration& operator=(const Registration&) = delete;
        ~Registration() {
            if (progress_ != nullptr) progress_->all_.erase(position_);
        }

      private:
        Progress* progress_ = nullptr;
        std::list<Advance>::iterator position_;
    };

    /// Lets everybody advance as far as possible without waiting; whether anything is still under
    /// way.
    bool advance() {
        bool under_way = false;
        for (const Advance& each : all_) under_way |= each();
        return under_way;
    }

  private:
    std::list<Advance> all_;
};

}  // namespace fullshard::comm

// Waiting for other ranks without burning their core and without waiting for ever.
#pragma once

#include <functional>
#include <string>

namespace fullshard::comm {

/// "rank 3 on node017": how errors name this process. Set once by MpiSession.
const std::string& process_name();
void set_process_name(std::string name);

/// One wait. Call `pause()` between polls: it spins a little, then yields, then sleeps, because
/// ranks may outnumber cores. After `timeout_s` seconds it throws CommunicationError naming what it
/// waited for; whoever reports the error adds the process.
class Waiter {
  public:
    /// `awaited` is only called when the deadline has passed.
    Waiter(double timeout_s, std::function<std::string()> awaited);
    void pause();

  private:
    double timeout_s_;
    std::function<std::string()> awaited_;
    double begin_ = 0.0;
    long polls_ = 0;
};

}  // namespace fullshard::comm

// Waiting for other ranks without burning their core and without waiting for ever.
#pragma once

#include "comm/ledger.h"

#include <functional>
#include <string>

namespace fullshard::comm {

/// "rank 3 on node017": how errors name this process. Set once by MpiSession.
const std::string& process_name();
void set_process_name(std::string name);

/// One wait. Call `pause()` between polls: it spins a little, then yields, then sleeps, because
/// ranks may outnumber cores. After `timeout_s` seconds it throws TimeoutError naming what it
/// waited for; whoever reports the error adds the process. Time in which the process itself was
/// stopped does not count. A wait of more than a second is in the ledger.
class Waiter {
  public:
    /// `awaited` is called once a second at most.
    Waiter(Ledger& ledger, double timeout_s, std::function<Wait()> awaited);
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    void pause();

  private:
    Ledger& ledger_;
    double timeout_s_;
    std::function<Wait()> awaited_;
    double waited_s_ = 0.0;
    double last_ = 0.0;          ///< when `pause` was last called; 0: not yet in need of a clock
    double next_entry_s_ = 1.0;  ///< of waited_s_, when the ledger is told
    long polls_ = 0;
    bool timed_out_ = false;  ///< then the ledger keeps the wait, for the report
};

}  // namespace fullshard::comm

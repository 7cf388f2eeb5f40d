#include "train/state_view.h"

namespace fullshard::train {

StateView::StateView(const shard::Layout& layout, shard::UnitStore& store, optim::AdamW& optimizer)
    : store_(store), optimizer_(optimizer) {
    if (!optimizer.device().on_host()) copies_.resize(layout.units.size());
}

std::span<float> StateView::master(std::int64_t unit) {
    if (copies_.empty()) return store_.master(unit).as<float>();
    copy(unit).master.resize(static_cast<std::size_t>(store_.master(unit).count));
    return copy(unit).master;
}

std::span<float> StateView::first_moment(std::int64_t unit) {
    const TypedSpan moment = optimizer_.first_moment(unit);
    if (copies_.empty()) return moment.as<float>();
    copy(unit).first_moment.resize(static_cast<std::size_t>(moment.count));
    return copy(unit).first_moment;
}

std::span<float> StateView::second_moment(std::int64_t unit) {
    const TypedSpan moment = optimizer_.second_moment(unit);
    if (copies_.empty()) return moment.as<float>();
    copy(unit).second_moment.resize(static_cast<std::size_t>(moment.count));
    return copy(unit).second_moment;
}

void StateView::refresh() {
    for (std::int64_t unit = 0; unit < std::ssize(copies_); ++unit) {
        store_.read_master(unit, master(unit));
        optimizer_.device().read(optimizer_.first_moment(unit), first_moment(unit));
        optimizer_.device().read(optimizer_.second_moment(unit), second_moment(unit));
    }
}

void StateView::put_back() {
    for (std::int64_t unit = 0; unit < std::ssize(copies_); ++unit) {
        store_.set_master(unit, master(unit));
        optimizer_.device().write(first_moment(unit), optimizer_.first_moment(unit));
        optimizer_.device().write(second_moment(unit), optimizer_.second_moment(unit));
    }
}

}  // namespace fullshard::train

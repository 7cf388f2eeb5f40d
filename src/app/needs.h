// What a run will take from its nodes and its disk, known before it starts.
#pragma once

#include "comm/group.h"
#include "config/deck.h"
#include "doctor/doctor.h"
#include "train/assemble.h"

namespace fullshard::app {

/// Of this rank's part. Throws AgreedError for mistakes that show with the model or the number of
/// ranks. Allocates nothing of it. Collective over `job`.
doctor::Needs needs_of_run(const config::Deck& deck, const comm::Group& job,
                           const train::ModelFactory& custom_model);

}  // namespace fullshard::app

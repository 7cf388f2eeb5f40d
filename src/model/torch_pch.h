// The one precompiled header of all targets that see LibTorch. Any header that declares an autograd
// node brings in every ATen operator (through torch/csrc/autograd/input_metadata.h), so a narrower
// one is not to be had; sources still include the operators they use.
#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

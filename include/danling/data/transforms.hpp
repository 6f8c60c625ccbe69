// All transforms of whole batches: danling::data::transforms.
#pragma once

#include <danling/data/transforms/compose.hpp>
#include <danling/data/transforms/crop.hpp>
#include <danling/data/transforms/erase.hpp>
#include <danling/data/transforms/mix.hpp>
#include <danling/data/transforms/normalize.hpp>
#include <danling/data/transforms/resize.hpp>

// All metrics as functions: descriptors for containers, and one-shot values.
#pragma once

#include <danling/metrics/functional/accuracy.hpp>
#include <danling/metrics/functional/cohen_kappa.hpp>
#include <danling/metrics/functional/confusion_matrix.hpp>
#include <danling/metrics/functional/f_score.hpp>
#include <danling/metrics/functional/jaccard.hpp>
#include <danling/metrics/functional/mcc.hpp>
#include <danling/metrics/functional/precision_recall.hpp>

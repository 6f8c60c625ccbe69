// All metrics as functions: descriptors for containers, and one-shot functions.
#pragma once

#include <danling/metrics/functional/accuracy.hpp>
#include <danling/metrics/functional/calibration_error.hpp>
#include <danling/metrics/functional/cohen_kappa.hpp>
#include <danling/metrics/functional/confusion_matrix.hpp>
#include <danling/metrics/functional/correlation.hpp>
#include <danling/metrics/functional/curves.hpp>
#include <danling/metrics/functional/f_score.hpp>
#include <danling/metrics/functional/hinge_loss.hpp>
#include <danling/metrics/functional/jaccard.hpp>
#include <danling/metrics/functional/log_loss.hpp>
#include <danling/metrics/functional/mcc.hpp>
#include <danling/metrics/functional/perplexity.hpp>
#include <danling/metrics/functional/precision_recall.hpp>
#include <danling/metrics/functional/ranking.hpp>
#include <danling/metrics/functional/regression.hpp>

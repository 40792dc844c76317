// Fits positive factors to measured times.
#pragma once
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace cleave::partitioner {

/// A model of times with positive constants, each written as its value before the fit times a factor.
struct FitProblem {
  size_t constants = 0;
  /// Seconds of each sample, all positive, for the logarithms of the factors.
  std::function<std::vector<double>(std::span<const double> logs)> predict;
  std::vector<double> measured; ///< seconds of each sample, positive
  std::vector<double> weights;  ///< of each sample; their mean is 1
  /// By constant: the standard deviation of its factor's logarithm before anything is measured. Of constants that are
  /// only determined together, those with the largest are fitted.
  std::vector<double> beliefs;
};

struct FittedConstant {
  bool determined = false; ///< otherwise its factor is 1
  double factor = 1;
  double error = 0;            ///< relative standard error; determined constants only
  std::vector<size_t> samples; ///< those that depend on it
};

/// Minimises the weighted sum of Huber's loss of log(predicted / measured) by iteratively reweighted least squares
/// (Huber, Robust Estimation of a Location Parameter, 1964), each solved by Levenberg's and Marquardt's method (1963).
/// Every factor is believed to be 1 with its standard deviation, which weighs like one sample. A constant whose
/// relative standard error is above a fifth, or above half of its belief, is not determined: it is left out, one
/// after the other, and the others are fitted again.
std::vector<FittedConstant> fitFactors(const FitProblem &problem);

/// Of values and their weights; 0 for none.
double weightedMedian(std::vector<std::pair<double, double>> values);

} // namespace cleave::partitioner

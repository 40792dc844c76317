// Robust nonlinear least squares over few constants.
#include "partitioner/simulate/Fit.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace cleave::partitioner {

namespace {

using Vector = std::vector<double>;

constexpr double leastScale = 0.01;      ///< no model predicts times more exactly
constexpr double largestError = 0.2;     ///< of a determined constant
constexpr double most = 7;               ///< of a factor's logarithm
constexpr double leastElasticity = 0.02; ///< of a sample that depends on a constant

/// A symmetric, positive definite matrix.
class Matrix {
public:
  explicit Matrix(size_t n) : n(n), entries(n * n, 0) {}
  double &at(size_t i, size_t j) { return entries[i * n + j]; }
  double at(size_t i, size_t j) const { return entries[i * n + j]; }

  /// Solves this * x = b by Cholesky's factors.
  Vector solve(const Vector &b) const {
    Matrix lower(n);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j <= i; ++j) {
        double sum = at(i, j);
        for (size_t k = 0; k < j; ++k)
          sum -= lower.at(i, k) * lower.at(j, k);
        lower.at(i, j) = i == j ? std::sqrt(std::max(sum, 1e-300)) : sum / lower.at(j, j);
      }
    Vector x = b;
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < i; ++k)
        x[i] -= lower.at(i, k) * x[k];
      x[i] /= lower.at(i, i);
    }
    for (size_t i = n; i-- > 0;) {
      for (size_t k = i + 1; k < n; ++k)
        x[i] -= lower.at(k, i) * x[k];
      x[i] /= lower.at(i, i);
    }
    return x;
  }

private:
  size_t n;
  Vector entries;
};

class Fitter {
public:
  explicit Fitter(const FitProblem &problem) : problem(problem), logs(problem.constants, 0) {
    for (size_t i = 0; i < problem.constants; ++i)
      free.push_back(i);
  }

  std::vector<FittedConstant> run() {
    while (!free.empty()) {
      minimise();
      const Vector errors = standardErrors();
      if (!leaveOut(errors))
        return result(errors);
    }
    return result({});
  }

private:
  Vector residualsAt(const Vector &at) const {
    Vector residuals = problem.predict(at);
    for (size_t s = 0; s < residuals.size(); ++s)
      residuals[s] = std::log(residuals[s] / problem.measured[s]);
    return residuals;
  }

  /// Huber's weight of a residual.
  double trust(double residual) const {
    const double far = 1.345 * scale;
    return std::abs(residual) <= far ? 1 : far / std::abs(residual);
  }

  double loss(const Vector &at, const Vector &residuals) const {
    double sum = 0;
    for (size_t s = 0; s < residuals.size(); ++s) {
      const double far = 1.345 * scale, size = std::abs(residuals[s]);
      sum += problem.weights[s] * (size <= far ? size * size : far * (2 * size - far));
    }
    for (const size_t i : free)
      sum += belief(i) * at[i] * at[i];
    return sum;
  }

  double belief(size_t constant) const { return std::pow(scale / problem.beliefs[constant], 2); }

  /// The standard deviation of the residuals, from their weighted median.
  void measureScale(const Vector &residuals) {
    std::vector<std::pair<double, double>> sizes;
    for (size_t s = 0; s < residuals.size(); ++s)
      sizes.emplace_back(std::abs(residuals[s]), problem.weights[s]);
    scale = std::max(leastScale, 1.4826 * weightedMedian(std::move(sizes)));
  }

  /// By free constant: the derivative of each residual.
  void differentiate(const Vector &residuals) {
    constexpr double step = 1e-4;
    slopes.clear();
    for (const size_t i : free) {
      Vector moved = logs;
      moved[i] += step;
      Vector slope = residualsAt(moved);
      for (size_t s = 0; s < slope.size(); ++s)
        slope[s] = (slope[s] - residuals[s]) / step;
      slopes.push_back(std::move(slope));
    }
  }

  Matrix information(const Vector &residuals) const {
    Matrix normal(free.size());
    for (size_t i = 0; i < free.size(); ++i)
      for (size_t j = 0; j <= i; ++j) {
        double sum = i == j ? belief(free[i]) : 0;
        for (size_t s = 0; s < residuals.size(); ++s)
          sum += problem.weights[s] * trust(residuals[s]) * slopes[i][s] * slopes[j][s];
        normal.at(i, j) = normal.at(j, i) = sum;
      }
    return normal;
  }

  void minimise() {
    Vector residuals = residualsAt(logs);
    double damping = 1e-3;
    for (int round = 0; round < 60; ++round) {
      measureScale(residuals);
      differentiate(residuals);
      const double before = loss(logs, residuals);
      bool better = false;
      double gain = 0;
      for (int attempt = 0; attempt < 12 && !better; ++attempt, damping = better ? damping : damping * 8) {
        const Vector next = moved(residuals, damping);
        const Vector there = residualsAt(next);
        const double after = loss(next, there);
        if (better = after < before; better) {
          gain = (before - after) / before;
          logs = next;
          residuals = there;
          damping = std::max(1e-9, damping / 8);
        }
      }
      if (!better || gain < 1e-9)
        break;
    }
    measureScale(residuals);
    differentiate(residuals);
    last = residuals;
  }

  Vector moved(const Vector &residuals, double damping) const {
    Matrix normal = information(residuals);
    Vector right(free.size());
    for (size_t i = 0; i < free.size(); ++i) {
      right[i] = -belief(free[i]) * logs[free[i]];
      for (size_t s = 0; s < residuals.size(); ++s)
        right[i] -= problem.weights[s] * trust(residuals[s]) * slopes[i][s] * residuals[s];
      normal.at(i, i) *= 1 + damping;
    }
    const Vector change = normal.solve(right);
    Vector next = logs;
    for (size_t i = 0; i < free.size(); ++i)
      next[free[i]] = std::clamp(next[free[i]] + std::clamp(change[i], -1.0, 1.0), -most, most);
    return next;
  }

  Vector standardErrors() const {
    const Matrix normal = information(last);
    Vector errors;
    for (size_t i = 0; i < free.size(); ++i) {
      Vector unit(free.size(), 0);
      unit[i] = 1;
      errors.push_back(scale * std::sqrt(normal.solve(unit)[i]));
    }
    return errors;
  }

  /// Leaves out what no sample depends on; otherwise the one of which least was learnt, if it is not determined.
  bool leaveOut(const Vector &errors) {
    const size_t before = free.size();
    std::optional<size_t> worst;
    std::vector<size_t> kept;
    for (size_t i = 0; i < before; ++i) {
      if (std::ranges::all_of(slopes[i], [](double slope) { return std::abs(slope) < 1e-6; })) {
        logs[free[i]] = 0;
        continue;
      }
      kept.push_back(free[i]);
      const auto left = [&](size_t at) { return errors[at] / problem.beliefs[free[at]]; };
      if ((errors[i] > largestError || left(i) > 0.5) && (!worst || left(i) > left(*worst)))
        worst = i;
    }
    if (kept.size() == before && worst) {
      logs[free[*worst]] = 0;
      std::erase(kept, free[*worst]);
    }
    free = std::move(kept);
    return free.size() < before;
  }

  std::vector<FittedConstant> result(const Vector &errors) const {
    std::vector<FittedConstant> all(problem.constants);
    for (size_t i = 0; i < free.size(); ++i) {
      FittedConstant &one = all[free[i]];
      one.determined = true;
      one.factor = std::exp(logs[free[i]]);
      one.error = errors[i];
      for (size_t s = 0; s < slopes[i].size(); ++s)
        if (std::abs(slopes[i][s]) >= leastElasticity)
          one.samples.push_back(s);
    }
    return all;
  }

  const FitProblem &problem;
  Vector logs;              ///< of all factors
  std::vector<size_t> free; ///< constants that are fitted
  std::vector<Vector> slopes;
  Vector last;
  double scale = leastScale;
};

} // namespace

double weightedMedian(std::vector<std::pair<double, double>> values) {
  double half = 0;
  for (const auto &[value, weight] : values)
    half += weight / 2;
  std::sort(values.begin(), values.end());
  for (const auto &[value, weight] : values)
    if ((half -= weight) <= 0)
      return value;
  return values.empty() ? 0 : values.back().first;
}

std::vector<FittedConstant> fitFactors(const FitProblem &problem) { return Fitter(problem).run(); }

} // namespace cleave::partitioner

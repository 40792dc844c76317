// The values that a field of integers may have: those that the data set or the model declares, and those that functions
// of the model read as indices. A label that the loss cannot mean, or an id outside a table, is an error of the data.
#pragma once
#include "runtime/data/DataSource.h"

namespace cleave {

class ValueCheck {
public:
  /// `field`: of the data set; the plan's field of the same name is in `spec`. Throws environmentError if a rule of the
  /// plan does not fit its field.
  ValueCheck(const DataSpec &spec, const DataField &field);
  /// Throws userError that names the field, the sample and the value unless all values of a sample's field are allowed.
  void require(const SampleId &sample, const std::byte *values) const;

private:
  int64_t valueOf(const std::byte *values, int64_t element) const;
  bool isIgnored(int64_t value) const;
  void requireDeclared(const SampleId &sample, const std::byte *values) const;

  DataField field;
  int64_t classes = 0; ///< values are below this; 0: not declared
  struct Rule {
    IndexRule rule;
    std::vector<int64_t> elements; ///< to which it applies
  };
  std::vector<Rule> rules;
};

} // namespace cleave

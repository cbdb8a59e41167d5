#pragma once
// The parameters of a whole model, of which a pipeline rank holds only its own.
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/comm/mesh.hpp"
#include "trireme/layout/slices.hpp"

namespace trireme {

struct ModelParam {
  std::string name;
  Shape shape;  // of the full parameter
  at::ScalarType dtype = at::kFloat;
  bool is_trained = true;
};

/// Parameters that one pipeline rank holds together.
struct ParamSection {
  int order = 0;  // among all sections of the model
  int stage = 0;
  std::vector<ModelParam> params;
};

/// The sections of all pipeline ranks, in order. Collective if there is a pipeline.
std::vector<ParamSection> all_sections(const std::vector<ParamSection>& own, Mesh& mesh);

}  // namespace trireme

#pragma once
// How `varve gpu-check --simulate` shows what its rules are worth.
#include <iosfwd>

#include <nlohmann/json_fwd.hpp>

#include "gpu/simulate.h"

namespace varve::cli {

void print_simulation(const gpu::Simulation& simulation, std::ostream& out);
nlohmann::json simulation_json(const gpu::Simulation& simulation);

}  // namespace varve::cli

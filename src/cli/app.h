// The command line: subcommands, exit codes, interruption. Exit codes: 0 done, 1 a negative answer, 2 bad input.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <string>

#include "backend/backend.h"
#include "base/error.h"
#include "base/json.h"

namespace moetune {

inline constexpr int kDone = 0;
inline constexpr int kNegative = 1;
inline constexpr int kBadInput = 2;

/// What every subcommand is given.
struct Context {
  const Registry& registry;
  const std::atomic<bool>& stop;  ///< set by the first Ctrl-C: finish with what there is
  int exit_code = kDone;
  bool json = false;  ///< asked for with --json: an error is an object on standard output too
};

/// The whole program: parses, runs one subcommand, returns the exit code.
int run_cli(int argc, char** argv, const Registry& registry);

/// Prints the error and makes the exit code 2, or 1 after a Ctrl-C, which is no bad input.
void report_error(Context& context, const Error& error);

/// Prints to standard output. A reader that went away (`moetune … | head`) ends the program quietly.
void print(const std::string& text);
void print_json(const Json& object);

/// Width of the terminal on standard output; 160 where it is none.
[[nodiscard]] std::size_t terminal_width();

// One function a subcommand, each in its file: adds the subcommand with its flags and what it does to `app`.
void add_devices(CLI::App& app, Context& context);
void add_check(CLI::App& app, Context& context);
void add_bench(CLI::App& app, Context& context);
void add_tune(CLI::App& app, Context& context);
void add_results(CLI::App& app, Context& context);
void add_worker(CLI::App& app, Context& context);

}  // namespace moetune

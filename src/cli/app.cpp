#include "cli/app.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string_view>

#include "base/log.h"
#include "report/output.h"

namespace moetune {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

/// The first Ctrl-C asks for an end, the second does not ask.
extern "C" void on_interrupt(int signal) {
  if (stop_requested.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

/// Looked for by hand, so that a command line that cannot be parsed is answered in the form it asks for.
bool wants_json(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](const char* argument) { return std::string_view(argument) == "--json"; });
}

}  // namespace

int run_cli(int argc, char** argv, const Registry& registry) {
  start_log();
  handle_signals();
  Context context{registry, stop_requested};
  context.json = wants_json(argc, argv);
  CLI::App app{
      "Finds the fastest correct way to run a Mixture-of-Experts layer on this machine, and says why the rest cannot "
      "run.\n"
      "\n"
      "Start here:\n"
      "  moetune devices                          what is here\n"
      "  moetune check Qwen3-30B-A3B-NVFP4        which backends can run it, and why the others cannot\n"
      "  moetune bench Qwen3-30B-A3B-NVFP4        how fast they are, against what the hardware allows\n"
      "  moetune tune  Qwen3-30B-A3B-NVFP4        make the best of them faster, and remember it\n"
      "MODEL is a Hugging Face folder, its config.json, or a known name. Exit codes: 0 done, 1 negative answer, 2 bad "
      "input.",
      "moetune"};
  app.set_version_flag("--version", MOETUNE_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  for (const auto add : {add_devices, add_check, add_bench, add_tune, add_results, add_worker}) add(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    report_error(context, {e.what(), {"moetune --help and moetune COMMAND --help list what can be given"}});
  } catch (const std::exception& e) {  // such as no memory
    report_error(context, {e.what(), {}});
  }
  return context.exit_code;
}

void report_error(Context& context, const Error& error) {
  std::fputs(error_text(error).c_str(), stderr);
  if (context.json) print_json({{"error", error.what}, {"hints", error.hints}});
  context.exit_code = context.stop.load() ? kNegative : kBadInput;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_json(const Json& object) { print(dump_json_pretty(envelope(object)) + "\n"); }

std::size_t terminal_width() {
  struct winsize size {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
  return 160;
}

}  // namespace moetune

#include <fmt/format.h>

#include "base/subprocess.h"
#include "cli/app.h"
#include "cli/options.h"
#include "report/output.h"
#include "report/table.h"

namespace moetune {
namespace {

struct DevicesOptions {
  bool calibrate = false;
  bool json = false;
};

std::string ceilings_text(const Ceilings& c) {
  std::string text =
      fmt::format("  cold read {:.1f} GB/s, copy {:.1f} GB/s, arithmetic peak {:.0f} GFLOP/s\n  by size: ", c.read_gb_s,
                  c.copy_gb_s, c.bf16_tflops * 1e3);
  for (const auto& read : c.reads)
    text += fmt::format("{}{} {:.1f} GB/s", &read == &c.reads.front() ? "" : ", ",
                        show_bytes(static_cast<double>(read.bytes)), read.gb_s);
  return text + "\n";
}

void devices(const DevicesOptions& options, Context& context) {
  Json list = Json::array();
  std::string text;
  for (const auto& device : context.registry.devices())
    for (const auto& target : device->targets()) {
      Json entry = to_json(target);
      text += describe(target) + "\n";
      if (!target.features.empty()) {
        std::string features;
        for (const auto& feature : target.features) features += (features.empty() ? "" : " ") + feature;
        text += "  " + features + "\n";
      }
      if (options.calibrate) {
        const auto ceilings = device->measure(target);
        if (!ceilings) return report_error(context, ceilings.error());
        entry["ceilings"] = to_json(*ceilings);
        text += ceilings_text(*ceilings);
      }
      list.push_back(std::move(entry));
    }
  if (options.json)
    print_json({{"devices", list}});
  else
    print(text.empty() ? "no device that this build can use\n" : text);
  if (list.empty()) context.exit_code = kNegative;
}

}  // namespace

void add_devices(CLI::App& app, Context& context) {
  auto options = std::make_shared<DevicesOptions>();
  auto* command =
      app.add_subcommand("devices", "What this machine can run on, and with --calibrate what it can do at best");
  command->add_flag("--calibrate", options->calibrate, "measure memory bandwidth and arithmetic peak; takes seconds");
  command->add_flag("--json", options->json, "one JSON object instead of text");
  command->callback([options, &context] { devices(*options, context); });
}

}  // namespace moetune

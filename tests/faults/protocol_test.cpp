// Workers that do not speak the protocol, or speak it wrongly. They are shell scripts: what a worker in another
// language may look like.
#include <gmock/gmock.h>

#include <atomic>

#include "fault_test.h"

namespace moetune {
namespace {

using ::testing::HasSubstr;

/// A loop over requests: $id and $op are set, the given cases answer.
std::string loop(const std::string& cases) {
  return "while read -r line; do "
         "id=${line#*'\"id\":'}; id=${id%%,*}; op=${line#*'\"op\":\"'}; op=${op%%'\"'*}; "
         "case $op in " +
         cases + " quit) exit 0;; esac; done";
}

const std::string kHello =
    R"(hello) echo '{"id":'$id',"ok":true,"result":{"protocol":1,"version":"0","backends":[]}}';; )";
const std::string kOpen = R"(open) echo '{"id":'$id',"ok":true,"result":{}}';; )";
const std::string kRight =
    R"(echo '{"id":'$id',"ok":true,"result":{"status":"ok","samples_us":[7,8],"relative_error":0.001,"tolerance":0.01}}';; )";

class ProtocolTest : public FaultTest {
 protected:
  Outcome evaluate_with(const std::string& answer) {
    script(loop(kHello + kOpen + "evaluate) " + answer));
    WorkerEvaluator evaluator(job_, options_);
    return evaluator.evaluate(kWorkload, candidate(Fault::none));
  }
};

TEST_F(ProtocolTest, AWorkerInAnotherLanguage) {
  script(loop(kHello + kOpen + R"(evaluate) echo loading...; echo '{"event":"phase","phase":"check"}'; )" +
              R"(echo '{"event":"temperature","celsius":54}'; printf 'half a line'; echo; )" + kRight +
              R"(race) echo '{"id":'$id',"ok":true,"result":[{"status":"ok","samples_us":[5]}]}';; )" +
              R"(ceilings) echo '{"id":'$id',"ok":true,"result":{"read_gb_s":12.5}}';; )"));
  WorkerEvaluator evaluator(job_, options_);
  const Outcome outcome = evaluator.evaluate(kWorkload, candidate(Fault::none));
  EXPECT_EQ(outcome.status, OutcomeStatus::ok) << outcome.diagnosis;
  EXPECT_THAT(outcome.samples_us, ::testing::ElementsAre(7, 8));
  EXPECT_THAT(evaluator.race(kWorkload, std::vector{candidate(Fault::none)}).front().samples_us,
              ::testing::ElementsAre(5));
  const auto ceilings = evaluator.ceilings();
  ASSERT_TRUE(ceilings);
  EXPECT_EQ(ceilings->read_gb_s, 12.5);
  EXPECT_EQ(evaluator.starts(), 1);
}

TEST_F(ProtocolTest, AnswersThatMakeNoSense) {
  const auto expect_crash = [&](const std::string& answer, const std::string& words) {
    const Outcome outcome = evaluate_with(answer);
    EXPECT_EQ(outcome.status, OutcomeStatus::crashed) << answer;
    EXPECT_THAT(outcome.diagnosis, HasSubstr(words)) << answer;
  };
  expect_crash(R"(echo '{"id":99,"ok":true,"result":{}}';; )", "answered request 99 when asked 3");
  expect_crash(R"(echo '{"id":null,"ok":false,"failure":{"what":"?"}}';; )", "when asked 3");
  expect_crash(R"(echo '{"id":'$id',"ok":"yes"}';; )", "makes no sense: ok: ");
  expect_crash(R"(echo '{"id":'$id',"ok":false}';; )", "not ok and no failure");
  expect_crash(R"(echo '{"id":'$id',"ok":true}';; )", "makes no sense");
  expect_crash(R"(echo '{"id":'$id',"ok":true,"result":[1]}';; )", "makes no sense");
  expect_crash(R"(echo '{"id":'$id',"ok":true,"result":{"status":"splendid"}}';; )", "status: ");
  expect_crash(R"(echo '{"id":'$id',"ok":true,"result":{"status":"ok"}}';; )", "ok without samples");
  expect_crash(R"(echo '{"id":'$id',"ok":true,"result":{"status":"ok","samples_us":[1,-1]}}';; )",
               "a sample that is no time");
  expect_crash(R"(echo '{"id":'$id',"ok":true,"result":{"status":"ok","samples_us":["1"]}}';; )", "samples_us: [0]: ");
  expect_crash("while echo no; do :; done;; ", "lines that are no answer, the last \"no\"");
  expect_crash("exec cat /dev/zero;; ", "an endless line");
  expect_crash("exit 7;; ", "exit code 7");
  expect_crash("exec >&-; sleep 1000;; ", "closed its pipe and went on");
}

TEST_F(ProtocolTest, AnEndlessStreamOfPhasesEnds) {
  options_.evaluate_s = 0.5;
  const Outcome outcome = evaluate_with(R"(while echo '{"event":"phase","phase":"check"}'; do :; done;; )");
  EXPECT_EQ(outcome.status, OutcomeStatus::timed_out) << outcome.diagnosis;
}

TEST_F(ProtocolTest, AFailedRequestIsNotTheCandidatesFailure) {
  const Outcome outcome =
      evaluate_with(R"(echo '{"id":'$id',"ok":false,"failure":{"what":"no reference","hints":["fewer tokens"]}}';; )");
  EXPECT_EQ(outcome.status, OutcomeStatus::skipped);
  EXPECT_EQ(outcome.diagnosis, "no reference; fewer tokens");
}

// One that dies after its answer must not have the next candidate blamed for it.
TEST_F(ProtocolTest, AWorkerThatIsGoneIsReplacedUnnoticed) {
  script(loop(kHello + kOpen + "evaluate) " + kRight.substr(0, kRight.size() - 3) + "; exit 1;; "));
  WorkerEvaluator evaluator(job_, options_);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(evaluator.evaluate(kWorkload, candidate(Fault::none)).status, OutcomeStatus::ok);
  EXPECT_EQ(evaluator.starts(), 3);
}

// The reference is the worker's own work: whoever asks for it is not to blame, and it is not tried for every candidate.
TEST_F(ProtocolTest, AWorkerThatDiesOverTheReference) {
  script(loop(kHello + kOpen + R"(evaluate) echo '{"event":"phase","phase":"reference"}'; exit 1;; )"));
  WorkerEvaluator evaluator(job_, options_);
  for (int i = 0; i < 5; ++i) {
    const Outcome outcome = evaluator.evaluate(kWorkload, candidate(Fault::none, i));
    EXPECT_EQ(outcome.status, OutcomeStatus::skipped);
    EXPECT_THAT(outcome.diagnosis, HasSubstr("exit code 1 in phase 'reference'"));
  }
  EXPECT_EQ(evaluator.starts(), 1);
  (void)evaluator.evaluate({5, RoutingKind::uniform, 1}, candidate(Fault::none));
  EXPECT_EQ(evaluator.starts(), 2);
}

TEST_F(ProtocolTest, AWorkerThatCannotOpenIsGivenUp) {
  const auto expect_given_up = [&](const std::string& text, int starts, const std::string& words) {
    script(text);
    WorkerEvaluator evaluator(job_, options_);
    const auto status = evaluator.open();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().what, HasSubstr(words));
    EXPECT_EQ(evaluator.starts(), starts);
    for (int i = 0; i < 3; ++i) {
      const Outcome outcome = evaluator.evaluate(kWorkload, candidate(Fault::none));
      EXPECT_EQ(outcome.status, OutcomeStatus::skipped);
      EXPECT_THAT(outcome.diagnosis, HasSubstr(words));
    }
    EXPECT_FALSE(evaluator.ceilings());
    EXPECT_EQ(evaluator.starts(), starts);
    EXPECT_TRUE(evaluator.given_up());
  };
  expect_given_up("echo broken >&2; exit 3", 3, "3 times in a row: the worker ended: exit code 3");
  expect_given_up(loop(kHello + "open) kill -SEGV $$;; "), 3, "(Segmentation fault)");
  expect_given_up(loop(R"(hello) echo '{"id":'$id',"ok":true,"result":{"protocol":2}}';; )"), 1,
                  "speaks protocol 2, not 1");
  expect_given_up(loop(kHello + R"(open) echo '{"id":'$id',"ok":false,"failure":{"what":"no such file"}}';; )"), 1,
                  "no such file");
}

TEST_F(ProtocolTest, WhatAWorkerPrintedBeforeItsEndIsAHint) {
  script("echo starting >&2; echo 'cannot find libcuda.so.1' >&2; exit 3");
  WorkerEvaluator evaluator(job_, options_);
  const auto status = evaluator.open();
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().hints, ::testing::ElementsAre("it printed last: \"cannot find libcuda.so.1\""));
}

TEST_F(ProtocolTest, AnAbsentWorkerIsAnError) {
  options_.argv = {"/nonexistent/worker"};
  WorkerEvaluator evaluator(job_, options_);
  const auto status = evaluator.open();
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().what, HasSubstr("No such file or directory"));
}

/// Our own worker, spoken to by hand.
class SpokenTo : public FaultTest {
 protected:
  SpokenTo() : worker_(Subprocess::start({own_path(), "worker", mark_}).value()) {}
  void TearDown() override {
    worker_.kill();
    FaultTest::TearDown();
  }

  Json say(const std::string& request) {
    EXPECT_TRUE(worker_.write_line(request));
    std::string line;
    while (worker_.read_line(line, 60) == Subprocess::Read::line) {
      const auto json = parse_json(line);
      if (json && json->is_object() && json->contains("ok")) return *json;
    }
    ADD_FAILURE() << "no reply to " << request;
    return {};
  }
  std::string refusal(const std::string& request) {
    const Json reply = say(request);
    EXPECT_EQ(reply["ok"], false);
    return reply["failure"]["what"].get<std::string>();
  }

  Subprocess worker_;
};

TEST_F(SpokenTo, AnswersWhatIsWrongAndGoesOn) {
  EXPECT_THAT(refusal("nonsense"), HasSubstr("parse error"));
  EXPECT_THAT(refusal("[1,2]"), HasSubstr("a request is an object"));
  EXPECT_THAT(refusal(R"({"id":1,"op":"dance"})"), HasSubstr("op: "));
  EXPECT_THAT(refusal(R"({"id":1,"op":"evaluate","body":{}})"), HasSubstr("before 'open'"));
  EXPECT_THAT(refusal(R"({"id":1,"op":"ceilings"})"), HasSubstr("before 'open'"));
  EXPECT_THAT(refusal(R"({"id":1,"op":"open","body":{"problem":{"experts":"many"}}})"), HasSubstr("experts"));
  EXPECT_THAT(refusal(R"({"id":1,"op":"open","body":{}})"), HasSubstr("a matrix of 0 x 0"));
  const Json hello = say(R"({"id":5,"op":"hello"})");
  EXPECT_EQ(hello["id"], 5);
  EXPECT_EQ(hello["result"]["protocol"], kProtocolVersion);
  EXPECT_EQ(hello["result"]["backends"].size(), 4U);
}

TEST_F(SpokenTo, RefusesHostileRequests) {
  const std::string job = dump_json(to_json(job_));
  EXPECT_EQ(say(R"({"id":1,"op":"open","body":)" + job + "}")["ok"], true);
  EXPECT_THAT(refusal(R"({"id":2,"op":"open","body":)" + job + "}"), HasSubstr("twice"));
  const std::string one = R"({"backend":"test:faulty","config":{"fault":0,"us":1}})";
  const auto evaluate = [](const std::string& tokens, const std::string& candidates) {
    return R"({"id":3,"op":"evaluate","body":{"workload":{"tokens":)" + tokens + R"(},"candidates":[)" + candidates +
           "]}}";
  };
  for (const char* tokens : {"0", "-1", "9223372036854775807", "1048577"})
    EXPECT_THAT(refusal(evaluate(tokens, one)), HasSubstr("tokens")) << tokens;
  EXPECT_THAT(refusal(evaluate("1", "")), HasSubstr("0 candidates"));
  EXPECT_THAT(refusal(evaluate("1", one + "," + one)), HasSubstr("2 candidates"));
  EXPECT_THAT(refusal(R"({"id":4,"op":"ceilings"})"), HasSubstr("no cpu support"));
  EXPECT_EQ(say(evaluate("1", one))["result"]["status"], "ok");
  EXPECT_TRUE(worker_.write_line(R"({"op":"quit"})"));
  EXPECT_TRUE(worker_.wait(20));
  EXPECT_EQ(worker_.ending(), "exit code 0");
}

}  // namespace
}  // namespace moetune

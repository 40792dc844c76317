// Plans as graphs: nodes, edges and notes; and that no name ends a label or is read as markup.
#include "tools/cleave/Commands.h"

#include <catch2/catch.hpp>

using namespace cleave;

namespace {

PlanSummary twoStages() {
  PlanSummary report;
  report.model = "a \"model\" <b>&[x] #1 `y` \\n";
  report.mesh = {{{"dp", 2}, {"tp", 1}, {"pp", 2}}};
  report.ranks = 4;
  report.stages = {{{"embed", "blocks.0", "blocks.1"}, {0, 1}, 118'400, 1},
                   {{"blocks.2", "we\"ird]<i>"}, {2, 3}, 7, 1}};
  report.messages = {{0, 1, "blocks.1", 1 << 20, 4}, {0, 1, "embed", 1 << 20, 4}, {1, 0, "blocks.2", 1 << 19, 1}};
  report.collectives = {{"all-reduce", "dp", "gradients", 3 << 20, 2}, {"all-reduce", "dp+tp", "loss", 4, 1}};
  return report;
}

} // namespace

TEST_CASE("a plan as a graph of Graphviz") {
  CHECK(tool::showDot(twoStages()) == R"(digraph plan {
  rankdir=LR;
  label="a \"model\" &lt;b&gt;&amp;[x] #1 `y` \\n: 4 ranks = dp 2 x pp 2";
  node [shape=box];
  stage0 [label="stage 0\nembed, blocks.0-1\nranks 0, 1\n118,400 parameters"];
  stage1 [label="stage 1\nblocks.2, we\"ird]&lt;i&gt;\nranks 2, 3\n7 parameters"];
  stage0 -> stage1 [label="8 messages, 2.00 MiB"];
  stage1 -> stage0 [label="1 message, 0.500 MiB"];
  note0 [shape=note, label="axis dp\nall-reduce of gradients: 2 calls, 3.00 MiB"];
  note1 [shape=note, label="axis dp+tp\nall-reduce of loss: 1 call, &lt;0.001 MiB"];
}
)");
}

TEST_CASE("a plan as a graph of Mermaid") {
  CHECK(tool::showMermaid(twoStages()) == R"(flowchart LR
  subgraph plan["a #quot;model#quot; #lt;b#gt;#amp;[x] #35;1 #96;y#96; #92;n: 4 ranks = dp 2 x pp 2"]
    stage0["stage 0<br/>embed, blocks.0-1<br/>ranks 0, 1<br/>118,400 parameters"]
    stage1["stage 1<br/>blocks.2, we#quot;ird]#lt;i#gt;<br/>ranks 2, 3<br/>7 parameters"]
  end
  stage0 -->|"8 messages, 2.00 MiB"| stage1
  stage1 -->|"1 message, 0.500 MiB"| stage0
  note0>"axis dp<br/>all-reduce of gradients: 2 calls, 3.00 MiB"]
  note1>"axis dp+tp<br/>all-reduce of loss: 1 call, #lt;0.001 MiB"]
)");
}

TEST_CASE("long lists of layers are broken at commas; equal plans give equal graphs") {
  PlanSummary report = twoStages();
  report.stages[0].layers.assign(12, "a-long-name");
  for (const std::string &text : {tool::showDot(report), tool::showMermaid(report)}) {
    CHECK_THAT(text, Catch::Contains("a-long-name, a-long-name, a-long-name,"));
    CHECK_THAT(text, !Catch::Contains("a-long-name, a-long-name, a-long-name, a-long-name"));
  }
  CHECK(tool::showDot(report) == tool::showDot(report));
}

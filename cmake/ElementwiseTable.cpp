// Writes the table of elementwise ops from their definitions in a .td file (Cleave_Elementwise in
// ir/graph/GraphBase.td) as calls of macros; a file defines those that it needs and includes the table. Runs while
// Cleave is built.
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TableGen/Main.h"
#include "llvm/TableGen/Record.h"

using Record = llvm::Record;

static bool writeTable(llvm::raw_ostream &out, const llvm::RecordKeeper &records) {
  std::vector<const Record *> ops = records.getAllDerivedDefinitions("Cleave_Elementwise");
  llvm::sort(ops, [](const Record *a, const Record *b) { return a->getID() < b->getID(); }); // as in the .td file
  const auto calls = [&](llvm::StringRef macro, llvm::StringRef filter, std::initializer_list<const char *> fields) {
    out << "#ifdef " << macro << "\n";
    for (const Record *op : ops) {
      llvm::StringRef name = op->getName(), mnemonic = op->getValueAsString("opName");
      name.consume_front("Cleave_"), name.consume_back("Op");
      if (!filter.empty() && (!op->isSubClassOf(filter) || op->getValueAsString("value").empty()))
        continue;
      out << macro << "(" << name << ", " << mnemonic;
      for (const char *field : fields)
        out << ", " << op->getValue(field)->getValue()->getAsUnquotedString();
      out << ")\n";
    }
    out << "#endif\n";
  };
  calls("CLEAVE_ELEMENTWISE", "", {"cycles", "exact"});
  calls("CLEAVE_UNARY", "Cleave_Unary", {"exact", "llvm", "value"});
  calls("CLEAVE_BINARY", "Cleave_Binary", {"exact", "llvm", "value"});
  calls("CLEAVE_FUNCTION", "Cleave_Function", {});
  for (const char *macro : {"CLEAVE_ELEMENTWISE", "CLEAVE_UNARY", "CLEAVE_BINARY", "CLEAVE_FUNCTION"})
    out << "#undef " << macro << "\n";
  return false;
}

int main(int argc, char **argv) {
  llvm::cl::ParseCommandLineOptions(argc, argv);
  return llvm::TableGenMain(argv[0], writeTable);
}

// Everything a program that defines a model needs: `#include <cleave/cleave.h>`.
#pragma once
#include "cleave/Data.h"
#include "cleave/Functional.h"
#include "cleave/Init.h"
#include "cleave/Layers.h"
#include "cleave/Loss.h"
#include "cleave/Module.h"
#include "cleave/Optimizer.h"
#include "cleave/Program.h"
#include "cleave/Tensor.h"
#include "cleave/Trainer.h"

#include "model/problem.h"

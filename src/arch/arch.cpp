#include "arch/target.h"

/* ebb/ebb.h: everything. */
#ifndef EBB_EBB_H
#define EBB_EBB_H

#include <ebb/autograd.h>
#include <ebb/capture.h>
#include <ebb/checkpoint.h>
#include <ebb/context.h>
#include <ebb/data.h>
#include <ebb/device.h>
#include <ebb/frontier.h>
#include <ebb/leak.h>
#include <ebb/memory.h>
#include <ebb/nn.h>
#include <ebb/op.h>
#include <ebb/ops.h>
#include <ebb/optim.h>
#include <ebb/report.h>
#include <ebb/status.h>
#include <ebb/stream.h>
#include <ebb/tensor.h>
#include <ebb/trace.h>
#include <ebb/train.h>
#include <ebb/plan.h>
#include <ebb/types.h>

#endif

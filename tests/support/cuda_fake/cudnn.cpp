/* cudnn.cpp: cuDNN's backend API, with an interpreter: descriptors keep their attributes, and running a plan
 * evaluates the graph's operations one by one, every tensor dense in double.  So what the graph says is checked,
 * not only that attention comes out. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cudnn.h>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "device/cuda/cudnn_api.h"
#include "state.h"

using namespace fake;

struct cudnnContext {
    cudaStream_t stream;
    int device;
};

namespace {

enum { PLAN_BYTES = 256, NAN_BYTE = 0xff };

struct attribute {
    cudnnBackendAttributeType_t type;
    std::vector<char> bytes; /* descriptors: their addresses */
};
struct descriptor {
    cudnnBackendDescriptorType_t kind;
    bool final;
    std::map<cudnnBackendAttributeName_t, attribute> attributes;
};

descriptor *of(cudnnBackendDescriptor_t d) { return reinterpret_cast<descriptor *>(d); }

size_t value_bytes(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_DOUBLE: return 8;
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_CHAR: return 1;
    default: return sizeof(int); /* enums */
    }
}

const attribute &get(const descriptor *d, cudnnBackendAttributeName_t name)
{
    auto it = d->attributes.find(name);
    if (it == d->attributes.end()) die("cuDNN: descriptor of kind %d lacks attribute %d", (int)d->kind, (int)name);
    return it->second;
}

template <class T> T one(const descriptor *d, cudnnBackendAttributeName_t name)
{
    const attribute &a = get(d, name);
    T value;
    if (a.bytes.size() != sizeof value) die("cuDNN: attribute %d has another size", (int)name);
    memcpy(&value, a.bytes.data(), sizeof value);
    return value;
}

template <class T> std::vector<T> all(const descriptor *d, cudnnBackendAttributeName_t name)
{
    const attribute &a = get(d, name);
    std::vector<T> values(a.bytes.size() / sizeof(T));
    memcpy(values.data(), a.bytes.data(), a.bytes.size());
    return values;
}

descriptor *part(const descriptor *d, cudnnBackendAttributeName_t name)
{
    return of(one<cudnnBackendDescriptor_t>(d, name));
}

bool has(const descriptor *d, cudnnBackendAttributeName_t name) { return d->attributes.count(name) > 0; }

/* ---- tensors ---------------------------------------------------------------------------------------- */

struct tensor {
    int64_t id, dims[4], strides[4];
    cudnnDataType_t type;
    bool is_virtual, by_value;
    int64_t elems() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

tensor tensor_of(const descriptor *d)
{
    tensor t;
    std::vector<int64_t> dims = all<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    std::vector<int64_t> strides = all<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES);
    if (dims.size() != 4 || strides.size() != 4) die("cuDNN: tensors have 4 dimensions here");
    for (int i = 0; i < 4; i++) t.dims[i] = dims[(size_t)i], t.strides[i] = strides[(size_t)i];
    t.id = one<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.type = one<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.is_virtual = one<bool>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t.by_value = one<bool>(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    return t;
}

size_t type_bytes(cudnnDataType_t type)
{
    return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32 ? 4 : type == CUDNN_DATA_BOOLEAN ? 1 : 2;
}

double load(const void *p, int64_t i, cudnnDataType_t type)
{
    switch (type) {
    case CUDNN_DATA_FLOAT: return ((const float *)p)[i];
    case CUDNN_DATA_HALF: return __half2float(((const __half *)p)[i]);
    case CUDNN_DATA_BFLOAT16: return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    default: die("cuDNN: data type %d in memory is not modelled", (int)type);
    }
}

void store(void *p, int64_t i, cudnnDataType_t type, double value)
{
    switch (type) {
    case CUDNN_DATA_FLOAT: ((float *)p)[i] = (float)value; break;
    case CUDNN_DATA_HALF: ((__half *)p)[i] = __float2half_rn((float)value); break;
    case CUDNN_DATA_BFLOAT16: ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn((float)value); break;
    default: die("cuDNN: data type %d in memory is not modelled", (int)type);
    }
}

double rounded(double value, cudnnDataType_t type)
{
    if (type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN) return value;
    char bytes[4];
    store(bytes, 0, type, value);
    return load(bytes, 0, type);
}

/* ---- running a graph --------------------------------------------------------------------------------- */

struct machine {
    std::map<int64_t, void *> memory;               /* by id, of what is not virtual */
    std::map<int64_t, double> numbers;              /* by value */
    std::map<int64_t, std::vector<double>> virtuals; /* dense, in the order of dims */

    template <class Fn> static void each(const tensor &t, Fn fn)
    {
        int64_t i = 0, at[4];
        for (at[0] = 0; at[0] < t.dims[0]; at[0]++)
            for (at[1] = 0; at[1] < t.dims[1]; at[1]++)
                for (at[2] = 0; at[2] < t.dims[2]; at[2]++)
                    for (at[3] = 0; at[3] < t.dims[3]; at[3]++, i++) fn(i, at);
    }

    static int64_t offset(const tensor &t, const int64_t *at)
    {
        int64_t o = 0;
        for (int d = 0; d < 4; d++) o += at[d] * t.strides[d];
        return o;
    }

    std::vector<double> read(const tensor &t)
    {
        if (t.by_value) return { numbers.at(t.id) };
        if (t.is_virtual) {
            if (!virtuals.count(t.id)) die("cuDNN: a virtual tensor is read before it is written");
            return virtuals[t.id];
        }
        if (!memory.count(t.id)) die("cuDNN: tensor %ld is not in the variant pack", (long)t.id);
        std::vector<double> values((size_t)t.elems());
        const void *p = memory[t.id];
        each(t, [&](int64_t i, const int64_t *at) { values[(size_t)i] = load(p, offset(t, at), t.type); });
        return values;
    }

    void write(const tensor &t, std::vector<double> values, bool add)
    {
        if (t.is_virtual) {
            for (double &v : values) v = rounded(v, t.type);
            virtuals[t.id] = std::move(values);
            return;
        }
        if (!memory.count(t.id)) die("cuDNN: tensor %ld is not in the variant pack", (long)t.id);
        void *p = memory[t.id];
        each(t, [&](int64_t i, const int64_t *at) {
            int64_t o = offset(t, at);
            store(p, o, t.type, values[(size_t)i] + (add ? load(p, o, t.type) : 0));
        });
    }

    void pointwise(const descriptor *op);
    void matmul(const descriptor *op);
    void reduce(const descriptor *op);
    void reshape(const descriptor *op);
    void run(const descriptor *op);
};

/* Index into x of y's element `at`: dimensions of 1 are for all. */
int64_t broadcast(const tensor &x, const int64_t *at)
{
    int64_t i = 0;
    for (int d = 0; d < 4; d++) i = i * x.dims[d] + (x.dims[d] == 1 ? 0 : at[d]);
    return i;
}

double apply(cudnnPointwiseMode_t f, double x, double b, double t)
{
    switch (f) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    default: die("cuDNN: pointwise mode %d is not modelled", (int)f);
    }
}

void machine::pointwise(const descriptor *op)
{
    const descriptor *how = part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    cudnnPointwiseMode_t f = one<cudnnPointwiseMode_t>(how, CUDNN_ATTR_POINTWISE_MODE);
    tensor x = tensor_of(part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)), b = x, t = x;
    tensor y = tensor_of(part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    std::vector<double> xs = read(x), bs(1), ts(1), ys((size_t)y.elems());
    bool has_b = has(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC), has_t = has(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    if (has_b) b = tensor_of(part(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC)), bs = read(b);
    if (has_t) t = tensor_of(part(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC)), ts = read(t);
    int64_t axis = f == CUDNN_POINTWISE_GEN_INDEX ? one<int64_t>(how, CUDNN_ATTR_POINTWISE_AXIS) : 0;
    each(y, [&](int64_t i, const int64_t *at) {
        if (f == CUDNN_POINTWISE_GEN_INDEX) ys[(size_t)i] = (double)at[axis];
        else ys[(size_t)i] = apply(f, xs[(size_t)broadcast(x, at)], has_b ? bs[(size_t)broadcast(b, at)] : 0,
                                   has_t ? ts[(size_t)broadcast(t, at)] : 0);
    });
    write(y, std::move(ys), false);
}

/* Heads of A or B that are fewer than C's serve several of it. */
void machine::matmul(const descriptor *op)
{
    tensor a = tensor_of(part(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    tensor b = tensor_of(part(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    tensor c = tensor_of(part(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    bool fits = a.dims[2] == c.dims[2] && b.dims[3] == c.dims[3] && a.dims[3] == b.dims[2] &&
                a.dims[0] == c.dims[0] && b.dims[0] == c.dims[0] && c.dims[1] % a.dims[1] == 0 &&
                c.dims[1] % b.dims[1] == 0;
    if (!fits) die("cuDNN: the shapes of a matmul do not agree");
    std::vector<double> as = read(a), bs = read(b), cs((size_t)c.elems());
    int64_t m = c.dims[2], n = c.dims[3], k = a.dims[3];
    for (int64_t batch = 0; batch < c.dims[0]; batch++) {
        for (int64_t head = 0; head < c.dims[1]; head++) {
            const double *pa = &as[(size_t)((batch * a.dims[1] + head / (c.dims[1] / a.dims[1])) * m * k)];
            const double *pb = &bs[(size_t)((batch * b.dims[1] + head / (c.dims[1] / b.dims[1])) * k * n)];
            double *pc = &cs[(size_t)((batch * c.dims[1] + head) * m * n)];
            for (int64_t i = 0; i < m; i++)
                for (int64_t l = 0; l < k; l++)
                    for (int64_t j = 0; j < n; j++) pc[i * n + j] += pa[i * k + l] * pb[l * n + j];
        }
    }
    write(c, std::move(cs), !c.is_virtual && c.id == EBB__CUDNN_DQ_SUMS);
}

void machine::reduce(const descriptor *op)
{
    const descriptor *how = part(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    bool max = one<cudnnReduceTensorOp_t>(how, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
    tensor x = tensor_of(part(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
    tensor y = tensor_of(part(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    std::vector<double> xs = read(x), ys((size_t)y.elems(), max ? -INFINITY : 0);
    int64_t group[4];
    for (int d = 0; d < 4; d++) group[d] = x.dims[d] / y.dims[d];
    each(x, [&](int64_t i, const int64_t *at) {
        int64_t o = 0;
        for (int d = 0; d < 4; d++) o = o * y.dims[d] + at[d] / group[d];
        double &to = ys[(size_t)o];
        to = max ? fmax(to, xs[(size_t)i]) : to + xs[(size_t)i];
    });
    write(y, std::move(ys), false);
}

/* The last two dimensions change places: the only reshape that attention has. */
void machine::reshape(const descriptor *op)
{
    tensor x = tensor_of(part(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
    tensor y = tensor_of(part(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    if (x.dims[2] != y.dims[3] || x.dims[3] != y.dims[2]) die("cuDNN: a reshape that is no transpose");
    std::vector<double> xs = read(x), ys((size_t)y.elems());
    each(y, [&](int64_t i, const int64_t *at) {
        const int64_t from[4] = { at[0], at[1], at[3], at[2] };
        ys[(size_t)i] = xs[(size_t)broadcast(x, from)];
    });
    write(y, std::move(ys), false);
}

void machine::run(const descriptor *op)
{
    switch (op->kind) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: pointwise(op); break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: matmul(op); break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: reduce(op); break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: reshape(op); break;
    default: die("cuDNN: operation %d is not modelled", (int)op->kind);
    }
}

const cudnnBackendAttributeName_t tensor_attributes[] = {
    CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
    CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
    CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
};

size_t extent(const tensor &t)
{
    int64_t last = 0;
    for (int d = 0; d < 4; d++) last += (t.dims[d] - 1) * t.strides[d];
    return (size_t)(last + 1) * type_bytes(t.type);
}

/* Device tensors are where they are said to be; numbers are read now, as cuDNN does. */
void bind_tensors(machine *m, const descriptor *operation, const std::map<int64_t, void *> &given)
{
    for (cudnnBackendAttributeName_t name : tensor_attributes) {
        if (!has(operation, name)) continue;
        tensor t = tensor_of(part(operation, name));
        if (t.is_virtual) continue;
        auto it = given.find(t.id);
        if (it == given.end()) die("cuDNN: tensor %ld is not in the variant pack", (long)t.id);
        if (t.by_value) {
            m->numbers[t.id] = *(const float *)it->second;
            continue;
        }
        if ((uintptr_t)it->second % 16) die("cuDNN: tensor %ld is not aligned to 16 bytes", (long)t.id);
        if (!is_device(it->second, extent(t), current_device())) {
            die("cuDNN: tensor %ld is not device memory", (long)t.id);
        }
        m->memory[t.id] = it->second;
    }
}

std::vector<descriptor *> operations_of(const descriptor *plan)
{
    const descriptor *config = part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const descriptor *graph = part(config, CUDNN_ATTR_ENGINE_OPERATION_GRAPH); /* where the heuristic put it */
    std::vector<descriptor *> operations;
    for (cudnnBackendDescriptor_t d : all<cudnnBackendDescriptor_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        operations.push_back(of(d));
    }
    return operations;
}

void put(descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void *value,
         size_t bytes)
{
    attribute &a = d->attributes[name];
    a.type = type;
    a.bytes.assign((const char *)value, (const char *)value + bytes);
}

/* ---- the API -------------------------------------------------------------------------------------------- */

#define FAKE_CUDNN_CALL(name, error)                                       \
    guard lock = enter();                                                  \
    if (crash != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;        \
    if (must_fail(name)) return error

cudnnStatus_t create_handle(cudnnHandle_t *handle)
{
    FAKE_CUDNN_CALL("cudnnCreate", CUDNN_STATUS_ALLOC_FAILED);
    *handle = new cudnnContext{};
    (*handle)->device = current_device();
    counts.cudnn_objects++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy_handle(cudnnHandle_t handle)
{
    guard lock = enter();
    delete handle;
    counts.cudnn_objects--;
    write_report();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    FAKE_CUDNN_CALL("cudnnSetStream", CUDNN_STATUS_BAD_PARAM);
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t *out)
{
    FAKE_CUDNN_CALL("cudnnBackendCreateDescriptor", CUDNN_STATUS_ALLOC_FAILED);
    *out = reinterpret_cast<cudnnBackendDescriptor_t>(new descriptor{ kind, false, {} });
    counts.cudnn_objects++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t d)
{
    guard lock = enter();
    delete of(d);
    counts.cudnn_objects--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    FAKE_CUDNN_CALL("cudnnBackendSetAttribute", CUDNN_STATUS_BAD_PARAM);
    if (of(d)->final) return CUDNN_STATUS_BAD_PARAM;
    put(of(d), name, type, values, (size_t)n * value_bytes(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t d)
{
    FAKE_CUDNN_CALL("cudnnBackendFinalize", CUDNN_STATUS_NOT_SUPPORTED);
    of(d)->final = true;
    return CUDNN_STATUS_SUCCESS;
}

/* The heuristic's one result, an engine's notes, a plan's workspace. */
cudnnStatus_t get_attribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t,
                            int64_t wanted, int64_t *n, void *values)
{
    FAKE_CUDNN_CALL("cudnnBackendGetAttribute", CUDNN_STATUS_INTERNAL_ERROR);
    int64_t bytes = options.engine == FAKE_ENGINE_GREEDY ? INT64_MAX : PLAN_BYTES;
    cudnnBackendNumericalNote_t note = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    *n = 1;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
        if (wanted < 1) return CUDNN_STATUS_BAD_PARAM;
        const attribute &graph = get(of(d), CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        put(of(*(cudnnBackendDescriptor_t *)values), CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.type,
            graph.bytes.data(), graph.bytes.size());
        return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE: return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *n = options.engine == FAKE_ENGINE_UNORDERED;
        if (*n) memcpy(values, &note, sizeof note);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: memcpy(values, &bytes, sizeof bytes); return CUDNN_STATUS_SUCCESS;
    default: die("cudnnBackendGetAttribute(%d) is not modelled", (int)name);
    }
}

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    FAKE_CUDNN_CALL("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
    std::vector<int64_t> ids = all<int64_t>(of(pack), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    std::vector<void *> pointers = all<void *>(of(pack), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    void *workspace = one<void *>(of(pack), CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    std::map<int64_t, void *> given;
    for (size_t i = 0; i < ids.size(); i++) given[ids[i]] = pointers[i];
    auto m = std::make_shared<machine>();
    std::vector<descriptor *> operations = operations_of(of(plan));
    for (descriptor *operation : operations) bind_tensors(m.get(), operation, given);
    if (!is_device(workspace, PLAN_BYTES, current_device())) die("cuDNN: the workspace is not device memory");
    if (handle->device != current_device() || device_of(handle->stream) != current_device()) {
        die("cudnnBackendExecute: of another device than the thread's, %d", current_device());
    }
    counts.cudnn_executions++;
    push(handle->stream, [=] {
        memset(workspace, NAN_BYTE, PLAN_BYTES);
        for (descriptor *operation : operations) m->run(operation);
        m->virtuals.clear();
    });
    return CUDNN_STATUS_SUCCESS;
}

size_t version() { return CUDNN_VERSION; }
void last_error(char *text, size_t bytes)
{
    if (bytes) text[0] = '\0';
}

}

/* In place of cudnn_load.c. */
bool ebb__cudnn_load(ebb__cudnn_api *api)
{
    guard lock = enter();
    *api = {};
    if (!options.cudnn) return false;
    api->GetVersion = version;
    api->GetLastErrorString = last_error;
    api->Create = create_handle;
    api->Destroy = destroy_handle;
    api->SetStream = set_stream;
    api->BackendCreateDescriptor = create_descriptor;
    api->BackendDestroyDescriptor = destroy_descriptor;
    api->BackendSetAttribute = set_attribute;
    api->BackendGetAttribute = get_attribute;
    api->BackendFinalize = finalize;
    api->BackendExecute = execute;
    return true;
}

void ebb__cudnn_unload(ebb__cudnn_api *api) { *api = {}; }

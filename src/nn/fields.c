#include "nn/fields.h"

static cJSON *value_of(const ebb__field *field, const void *src)
{
    const char *at = (const char *)src + field->offset;
    switch (field->kind) {
    case EBB__INT: return cJSON_CreateNumber((double)*(const int64_t *)(const void *)at);
    case EBB__NUMBER: return cJSON_CreateNumber(*(const double *)(const void *)at);
    case EBB__BOOL: return cJSON_CreateBool(*(const bool *)(const void *)at);
    case EBB__STRING: return cJSON_CreateString(at);
    case EBB__CHOICE: return cJSON_CreateString(field->choices[*(const int *)(const void *)at]);
    case EBB__SIZE: {
        size_t bytes = *(const size_t *)(const void *)at;
        return bytes ? cJSON_CreateNumber((double)bytes) : cJSON_CreateNull();
    }
    case EBB__PAIR: return cJSON_CreateDoubleArray((const double *)(const void *)at, 2);
    case EBB__JSON: break;
    }
    return NULL;
}

ebb_status ebb__fields_add(cJSON *object, const char *key, cJSON *value)
{
    if (value && cJSON_HasObjectItem(object, key)) {
        cJSON_Delete(value);
        return EBB_OK;
    }
    if (!value || !cJSON_AddItemToObject(object, key, value)) {
        cJSON_Delete(value);
        return ebb_fail(EBB_ENOMEM, "config: no memory for key \"%s\"", key);
    }
    return EBB_OK;
}

ebb_status ebb__fields_fill(cJSON *object, const void *src, const ebb__field *fields, int n_fields)
{
    for (int i = 0; i < n_fields; i++) {
        const ebb__field *field = &fields[i];
        const char *text = (const char *)src + field->offset;
        if (field->kind == EBB__JSON || (field->kind == EBB__STRING && text[0] == '\0')) continue;
        if (cJSON_HasObjectItem(object, field->key)) continue;
        EBB_TRY(ebb__fields_add(object, field->key, value_of(field, src)));
    }
    return EBB_OK;
}

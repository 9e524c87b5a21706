package wire

// Codes of the protocol (section 7.1). Both styles exist and case counts: clients match on them exactly.
const (
	CodeInvocationFailed     = "invocation_failed"      // the handler threw
	CodeInvocationStopped    = "invocation_stopped"     // host or caller disconnected while the call ran
	CodeFunctionNotFound     = "function_not_found"     // no such function in that namespace
	CodeFunctionNotInvokable = "function_not_invokable" // the function is HTTP-invoked
	CodeTimeout              = "TIMEOUT"                // the timer of the caller's SDK
	CodeForbidden            = "FORBIDDEN"              // access rules
	CodeAuthError            = "AUTH_ERROR"             // in error frames only: the session is refused
	CodeUnclaimed            = "UNCLAIMED"              // a refused handshake: there is no account yet
	CodeInvalidNamespace     = "INVALID_NAMESPACE"      // a namespace was given and is blank or no text
	CodeEnqueueError         = "enqueue_error"          // the queue is unknown or its worker missing
	CodeInvocationError      = "invocation_error"       // internal failure while waiting
	CodeChannelSendFailed    = "channel_send_failed"    // the host's connection went away while sending
	CodeSerializationError   = "serialization_error"    // a result of a built-in function
	CodeDeserializationError = "deserialization_error"  // a payload does not fit a built-in function
	CodeDeserialization      = "DESERIALIZATION_ERROR"  // the same, in the other style
	CodeUnknown              = "UNKNOWN"                // malformed error body
	CodeTriggerFailed        = "trigger_registration_failed"
	CodeTriggerTypeNotFound  = "trigger_type_not_found"
	CodeUnregisterFailed     = "unregister_failed"
	CodeNotFound             = "NOT_FOUND"
	CodeInvalidArguments     = "INVALID_ARGUMENTS"
	CodeFunctionConflict     = "FUNCTION_NAMESPACE_CONFLICT" // in registrationrejected
	CodeWorkerConflict       = "WORKER_NAMESPACE_CONFLICT"   // in registrationrejected
)

// Codes of HTTP-invoked functions (section 10).
const (
	CodeHTTPError           = "http_error"
	CodeHTTPRequestFailed   = "http_request_failed"
	CodeHTTPResponseFailed  = "http_response_failed"
	CodeInvalidResponse     = "invalid_response"
	CodeURLValidationFailed = "url_validation_failed"
	CodeTimestampError      = "timestamp_error"
	CodeSecretNotFound      = "secret_not_found"
	CodeTokenNotFound       = "token_not_found"
	CodeAPIKeyNotFound      = "api_key_not_found"
	CodeMissingEnvVar       = "missing_env_var"
)

// Codes of the state functions.
const (
	CodeSetError        = "SET_ERROR"
	CodeGetError        = "GET_ERROR"
	CodeDeleteError     = "DELETE_ERROR"
	CodeUpdateError     = "UPDATE_ERROR"
	CodeListError       = "LIST_ERROR"
	CodeListGroupsError = "LIST_GROUPS_ERROR"
	CodeValueTooLarge   = "VALUE_TOO_LARGE"
)

// Codes of the stream functions.
const (
	CodeStreamSetError        = "STREAM_SET_ERROR"
	CodeStreamGetError        = "STREAM_GET_ERROR"
	CodeStreamDeleteError     = "STREAM_DELETE_ERROR"
	CodeStreamGetGroupError   = "STREAM_GET_GROUP_ERROR"
	CodeStreamListGroupsError = "STREAM_LIST_GROUPS_ERROR"
	CodeStreamListAllError    = "STREAM_LIST_ALL_ERROR"
	CodeStreamSendError       = "STREAM_SEND_ERROR"
	CodeStreamUpdateError     = "STREAM_UPDATE_ERROR"
)

// Codes of the queue functions.
const (
	CodeTopicNotSet          = "topic_not_set"
	CodeQueueNotSet          = "queue_not_set"
	CodeMessageIDNotSet      = "message_id_not_set"
	CodeTopicRequired        = "topic_required"
	CodeRedriveFailed        = "redrive_failed"
	CodeRedriveMessageFailed = "redrive_message_failed"
	CodeDiscardMessageFailed = "discard_message_failed"
	CodeListTopicsFailed     = "list_topics_failed"
	CodeTopicStatsFailed     = "topic_stats_failed"
	CodeDLQTopicsFailed      = "dlq_topics_failed"
	CodeDLQMessagesFailed    = "dlq_messages_failed"
)

// Codes of the configuration functions; also CodeNotFound.
const (
	CodeInvalidID         = "INVALID_ID"
	CodeNotRegistered     = "NOT_REGISTERED"
	CodeSchemaInvalid     = "SCHEMA_INVALID"
	CodeSchemaUnavailable = "SCHEMA_UNAVAILABLE"
	CodeExpandFailed      = "EXPAND_FAILED"
	CodeAdapterError      = "ADAPTER_ERROR"
)

// Codes of the observability functions.
const (
	CodeMemoryExporterNotEnabled = "memory_exporter_not_enabled"
	CodeTraceStorageClearFailed  = "trace_storage_clear_failed"
	CodeTimeValueOverflow        = "time_value_overflow"
)

// Codes in the bodies of HTTP routes; also CodeNotFound.
const (
	CodeMiddlewareTimeout = "MIDDLEWARE_TIMEOUT"
	CodeConditionNotMet   = "CONDITION_NOT_MET"
	CodeInternalError     = "INTERNAL_ERROR"
	CodeHandlerError      = "HANDLER_ERROR"
)

// Codes of observers (section 7.1 and part B); also CodeForbidden.
const (
	CodeUnsupported           = "UNSUPPORTED"
	CodeOverflow              = "OVERFLOW"
	CodeBufferFull            = "BUFFER_FULL"
	CodeInvalidObserve        = "INVALID_OBSERVE_DESCRIPTOR"
	CodeUnknownDB             = "UNKNOWN_DB"
	CodeInvalidCronExpression = "INVALID_CRON_EXPRESSION"
)

// Codes of this engine and its SDKs: other engines do not send them.
const (
	CodeInvocationTimeout = "INVOCATION_TIMEOUT" // the engine's own ceiling for a call
	CodeMessageTooLarge   = "MESSAGE_TOO_LARGE"  // the message was over the bound and was not kept
	CodeMalformedFrame    = "MALFORMED_FRAME"    // the message is no JSON object
	CodeHostOverloaded    = "HOST_OVERLOADED"    // calls in flight or write queue of the host
	CodeCallerOverloaded  = "CALLER_OVERLOADED"  // calls in flight of the caller
	CodeReservedPrefix    = "RESERVED_PREFIX"    // the id begins with engine::
	CodeOutcomeUnknown    = "OUTCOME_UNKNOWN"    // the call may or may not have run
	CodeLimit             = "LIMIT_EXCEEDED"     // any other bound of Limits
	CodeDraining          = "DRAINING"           // the engine is about to stop
)

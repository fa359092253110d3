package mqtt

// The reason codes that each packet of 5.0 may carry, as the table in its own
// section has them, with those that it most often carries first.
var (
	// PUBACK and PUBREC (5 §3.4.2.1, §3.5.2.1). "No matching subscribers" is a
	// server's to say, and of no consequence from a client, so it passes.
	publishReasons = []Reason{
		Success, NoMatchingSubscribers, UnspecifiedError, ImplementationSpecificError, NotAuthorized,
		TopicNameInvalid, PacketIdentifierInUse, QuotaExceeded, PayloadFormatInvalid,
	}

	// PUBREL and PUBCOMP (5 §3.6.2.1, §3.7.2.1).
	releaseReasons = []Reason{Success, PacketIdentifierNotFound}

	// SUBACK (5 §3.9.3), and in 3.x (3.1.1 §3.9.3). MQTT 3.1 knows no failure
	// here; that of 3.1.1 is taken in it, too.
	subscribeReasons = []Reason{
		Success, GrantedQoS1, GrantedQoS2, UnspecifiedError, ImplementationSpecificError, NotAuthorized,
		TopicFilterInvalid, PacketIdentifierInUse, QuotaExceeded, SharedSubscriptionsNotSupported,
		SubscriptionIdentifiersNotSupported, WildcardSubscriptionsNotSupported,
	}
	subscribeReasons3 = []Reason{Success, GrantedQoS1, GrantedQoS2, UnspecifiedError}

	// UNSUBACK (5 §3.11.3).
	unsubscribeReasons = []Reason{
		Success, NoSubscriptionExisted, UnspecifiedError, ImplementationSpecificError, NotAuthorized,
		TopicFilterInvalid, PacketIdentifierInUse,
	}

	// DISCONNECT by its sender (5 §3.14.2.1). That section leaves out "Bad
	// authentication method", which 5 §2.4 names for DISCONNECT.
	disconnectReasons = [...][]Reason{
		FromClient: {
			Success, DisconnectWithWillMessage, UnspecifiedError, MalformedPacket, ProtocolError,
			ImplementationSpecificError, TopicNameInvalid, ReceiveMaximumExceeded, TopicAliasInvalid,
			PacketTooLarge, MessageRateTooHigh, QuotaExceeded, AdministrativeAction, PayloadFormatInvalid,
		},
		FromServer: {
			Success, UnspecifiedError, MalformedPacket, ProtocolError, ImplementationSpecificError,
			NotAuthorized, ServerBusy, ServerShuttingDown, BadAuthenticationMethod, KeepAliveTimeout,
			SessionTakenOver, TopicFilterInvalid, TopicNameInvalid, ReceiveMaximumExceeded,
			TopicAliasInvalid, PacketTooLarge, MessageRateTooHigh, QuotaExceeded, AdministrativeAction,
			PayloadFormatInvalid, RetainNotSupported, QoSNotSupported, UseAnotherServer, ServerMoved,
			SharedSubscriptionsNotSupported, ConnectionRateExceeded, MaximumConnectTime,
			SubscriptionIdentifiersNotSupported, WildcardSubscriptionsNotSupported,
		},
	}

	// AUTH by its sender (5 §3.15.2.1).
	authReasons = [...][]Reason{
		FromClient: {ContinueAuthentication, ReAuthenticate},
		FromServer: {Success, ContinueAuthentication},
	}
)

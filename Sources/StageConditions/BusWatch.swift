/// Something to ask of the bus or of a service on it.
struct BusCall: Hashable {
    /// What the answer is for.
    enum Purpose: Hashable {
        /// A rule for signals: the answer says nothing, unless it is an error.
        case rule
        /// Who has the name of a service.
        case owner(WatchedService)
        /// All properties of an object.
        case properties(WatchedObject)
        /// How far the network reaches now.
        case connectivity
    }

    var purpose: Purpose
    var destination: String
    var path: String
    var interface: String
    var member: String
    var argument: String?
}

/// What a service or the bus said.
enum BusEvent: Hashable {
    /// The bus knows this client from now on.
    case connected
    /// The bus is gone.
    case lost
    /// The name of a service has another owner; an empty one stands for none.
    case owner(name: String, owner: String)
    /// Properties of an object have changed.
    ///
    /// Of some the values are told, and of those in `lost` it is told that they are others now.
    case changed(
        sender: String,
        path: String,
        interface: String,
        [String: BusValue],
        lost: [String]
    )
    /// A call was answered; with nothing, if the answer makes no sense or has nothing to say.
    case answered(BusCall, BusAnswer?)
}

/// What is in an answer.
enum BusAnswer: Hashable {
    /// The name of an error.
    case refusal(String)
    case text(String)
    case number(UInt32)
    case properties([String: BusValue])
}

/// Follows the services that know conditions: whom to ask what, and what their answers come to.
///
/// A state machine without input and output. A signal counts only if it comes from the connection
/// that owns the service's name: on a bus, everybody may send everybody signals. Services are called
/// by the same connection's name, so that an answer is never another one's, and none is started: who
/// only watches has no reason to start what it watches.
struct BusWatch {
    /// The properties that are known.
    private(set) var readings: [WatchedObject: [String: BusValue]] = [:]
    /// The connections that own the names of services, as far as known.
    private var owners: [WatchedService: String] = [:]
    /// What was asked and is not answered, apart from rules.
    private var open: Set<BusCall.Purpose> = []
    /// Whether the bus knows this client.
    private(set) var isConnected = false

    private static let bus = "org.freedesktop.DBus"
    private static let properties = "org.freedesktop.DBus.Properties"

    /// Whether everything that was asked is answered.
    var isSettled: Bool { isConnected && open.isEmpty }

    /// Whether a service is there.
    func has(_ service: WatchedService) -> Bool { owners[service] != nil }

    /// Takes in an event, and returns what is to be asked now.
    mutating func handle(_ event: BusEvent) -> [BusCall] {
        switch event {
        case .connected:
            isConnected = true
            return asked(Self.rules + WatchedService.allCases.map(Self.ownerCall))
        case .lost:
            self = BusWatch()
            return []
        case .owner(let name, let owner):
            guard let service = WatchedService(rawValue: name) else { return [] }
            return setOwner(of: service, to: owner)
        case .changed(let sender, let path, let interface, let values, let lost):
            let object = WatchedObject.allCases.first {
                $0.path == path && $0.interface == interface
            }
            guard let object, owners[object.service] == sender else { return [] }
            merge(values, into: object)
            guard !object.properties.isDisjoint(with: lost) else { return [] }
            return asked([propertiesCall(object)].compactMap(\.self))
        case .answered(let call, let answer):
            return handle(answer, to: call)
        }
    }

    /// What to ask for a fresh look at how far the network reaches; nothing where nobody can tell, or
    /// somebody looks already.
    mutating func checkConnectivity() -> [BusCall] {
        guard let owner = owners[.network], !open.contains(.connectivity) else { return [] }
        return asked([
            BusCall(
                purpose: .connectivity,
                destination: owner,
                path: WatchedObject.network.path,
                interface: WatchedObject.network.interface,
                member: "CheckConnectivity"
            )
        ])
    }

    private mutating func handle(_ answer: BusAnswer?, to call: BusCall) -> [BusCall] {
        switch call.purpose {
        case .rule:
            return []
        case .owner(let service):
            open.remove(call.purpose)
            guard case .text(let owner) = answer else { return [] }
            return setOwner(of: service, to: owner)
        case .properties(let object):
            guard owners[object.service] == call.destination else { return [] }
            open.remove(call.purpose)
            guard case .properties(let values) = answer else { return [] }
            merge(values, into: object)
            return []
        case .connectivity:
            guard owners[.network] == call.destination else { return [] }
            open.remove(call.purpose)
            guard case .number(let value) = answer else { return [] }
            merge(["Connectivity": .number(value)], into: .network)
            return []
        }
    }

    /// A new owner knows nothing of what the former one said.
    private mutating func setOwner(of service: WatchedService, to owner: String) -> [BusCall] {
        guard owners[service] ?? "" != owner else { return [] }
        owners[service] = owner.isEmpty ? nil : owner
        for object in service.objects {
            readings[object] = nil
            open.remove(.properties(object))
        }
        if service == .network { open.remove(.connectivity) }
        return asked(service.objects.compactMap(propertiesCall))
    }

    private mutating func merge(_ values: [String: BusValue], into object: WatchedObject) {
        let known = values.filter { object.properties.contains($0.key) }
        readings[object, default: [:]].merge(known) { $1 }
    }

    private mutating func asked(_ calls: [BusCall]) -> [BusCall] {
        open.formUnion(calls.lazy.map(\.purpose).filter { $0 != .rule })
        return calls
    }
}

extension BusWatch {
    private func propertiesCall(_ object: WatchedObject) -> BusCall? {
        owners[object.service].map { owner in
            BusCall(
                purpose: .properties(object),
                destination: owner,
                path: object.path,
                interface: Self.properties,
                member: "GetAll",
                argument: object.interface
            )
        }
    }

    private static func ownerCall(_ service: WatchedService) -> BusCall {
        busCall(.owner(service), "GetNameOwner", service.rawValue)
    }

    private static func busCall(
        _ purpose: BusCall.Purpose,
        _ member: String,
        _ argument: String
    ) -> BusCall {
        BusCall(
            purpose: purpose,
            destination: bus,
            path: "/org/freedesktop/DBus",
            interface: bus,
            member: member,
            argument: argument
        )
    }

    /// The signals that matter, and no others: each one wakes the thread.
    private static let rules: [BusCall] = {
        let owners = WatchedService.allCases.map { service in
            "type='signal',sender='\(bus)',path='/org/freedesktop/DBus',interface='\(bus)',"
                + "member='NameOwnerChanged',arg0='\(service.rawValue)'"
        }
        let changes = WatchedObject.allCases.map { object in
            "type='signal',sender='\(object.service.rawValue)',path='\(object.path)',"
                + "interface='\(properties)',member='PropertiesChanged',"
                + "arg0='\(object.interface)'"
        }
        return (owners + changes).map { busCall(.rule, "AddMatch", $0) }
    }()
}

/// Method call to the bus or to a service on it.
struct BusCall: Hashable {
    /// Purpose of a call, which determines how its reply is used.
    enum Purpose: Hashable {
        /// Adds a match rule for signals; only an error reply matters.
        case rule
        /// Gets the owner of a service's name.
        case owner(WatchedService)
        /// Gets all properties of an object.
        case properties(WatchedObject)
    }

    var purpose: Purpose
    var destination: String
    var path: String
    var interface: String
    var member: String
    var argument: String?
}

/// Event of the message bus.
enum BusEvent: Hashable {
    /// The bus has accepted this client.
    case connected
    /// The connection to the bus is lost.
    case lost
    /// The name of a service has a new owner, or none if `owner` is empty.
    case owner(name: String, owner: String)
    /// Properties of an object have changed.
    ///
    /// Contains the new values of some properties, and in `lost` the names of those whose new values are not
    /// included.
    case changed(
        sender: String,
        path: String,
        interface: String,
        [String: BusValue],
        lost: [String]
    )
    /// A call has a reply; `nil` if the reply is invalid or carries no value.
    case answered(BusCall, BusAnswer?)
}

/// Content of a reply.
enum BusAnswer: Hashable {
    /// Name of the error.
    case refusal(String)
    case text(String)
    case properties([String: BusValue])
}

/// State machine that follows the services which report conditions: decides which calls to make, and collects the
/// replies.
///
/// Does no I/O. A signal counts only if the owner of the service's name sent it, since any process on the bus can
/// send signals to any other. Calls are addressed to the owner's unique name, so that no other process can reply, and
/// so that calls do not start a service that is not running.
struct BusWatch {
    /// Properties read so far.
    private(set) var readings: [WatchedObject: [String: BusValue]] = [:]
    /// Unique names of the services' owners.
    private var owners: [WatchedService: String] = [:]
    /// Unanswered calls, except match rules.
    private var pendingCalls: Set<BusCall.Purpose> = []
    /// Set once the bus has accepted this client.
    private(set) var isConnected = false

    private static let bus = "org.freedesktop.DBus"
    private static let properties = "org.freedesktop.DBus.Properties"

    /// Set if all calls have been answered.
    var isSettled: Bool { isConnected && pendingCalls.isEmpty }

    /// Processes an event; returns the calls to make.
    mutating func handle(_ event: BusEvent) -> [BusCall] {
        switch event {
        case .connected:
            isConnected = true
            return registering(Self.rules + WatchedService.allCases.map(Self.ownerCall))
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
            return registering([propertiesCall(object)].compactMap(\.self))
        case .answered(let call, let answer):
            return handle(answer, to: call)
        }
    }

    private mutating func handle(_ answer: BusAnswer?, to call: BusCall) -> [BusCall] {
        switch call.purpose {
        case .rule:
            return []
        case .owner(let service):
            pendingCalls.remove(call.purpose)
            guard case .text(let owner) = answer else { return [] }
            return setOwner(of: service, to: owner)
        case .properties(let object):
            guard owners[object.service] == call.destination else { return [] }
            pendingCalls.remove(call.purpose)
            guard case .properties(let values) = answer else { return [] }
            merge(values, into: object)
            return []
        }
    }

    /// Changes the owner of a service, and discards what the former owner reported.
    private mutating func setOwner(of service: WatchedService, to owner: String) -> [BusCall] {
        guard owners[service] ?? "" != owner else { return [] }
        owners[service] = owner.isEmpty ? nil : owner
        for object in service.objects {
            readings[object] = nil
            pendingCalls.remove(.properties(object))
        }
        return registering(service.objects.compactMap(propertiesCall))
    }

    private mutating func merge(_ values: [String: BusValue], into object: WatchedObject) {
        let known = values.filter { object.properties.contains($0.key) }
        readings[object, default: [:]].merge(known) { $1 }
    }

    private mutating func registering(_ calls: [BusCall]) -> [BusCall] {
        pendingCalls.formUnion(calls.lazy.map(\.purpose).filter { $0 != .rule })
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
        busCall(for: .owner(service), member: "GetNameOwner", argument: service.rawValue)
    }

    private static func busCall(
        for purpose: BusCall.Purpose,
        member: String,
        argument: String
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

    /// Match rules for the required signals only, since each signal wakes the thread.
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
        return (owners + changes).map { busCall(for: .rule, member: "AddMatch", argument: $0) }
    }()
}

import CLinux

/// Change of the network that the kernel reports (rtnetlink(7)).
package enum NetworkEvent: Hashable, Sendable {
    /// The link with this index can carry packets, or no longer can.
    case link(UInt32, isRunning: Bool)
    /// A link was removed.
    case removedLink(UInt32)
    /// An address or a route exists; the kernel reports it again when its lifetime or a flag changes.
    case added(NetworkEntry)
    /// An address or a route was removed.
    case removed(NetworkEntry)
    /// Messages were dropped, or cannot be read.
    case lost
}

/// Identity of an address or a route, without its lifetime.
package struct NetworkEntry: Hashable, Sendable {
    private let bytes: [UInt8]

    /// Creates an entry from the fields of its message that identify it.
    package init(_ bytes: [UInt8]) { self.bytes = bytes }
}

extension NetworkEvent {
    /// Returns the events of a datagram, which has one message or several.
    ///
    /// Leaves out addresses that are valid on one link or on this machine only, addresses that the kernel still checks for
    /// duplicates, and routes that lead to no other machine. The rest of a datagram that is cut off is ``lost``.
    static func events(in datagram: ArraySlice<UInt8>) -> [NetworkEvent] {
        var events: [NetworkEvent] = []
        var rest = datagram
        while !rest.isEmpty {
            guard let length = rest.integer(at: 0, as: UInt32.self),
                let type = rest.integer(at: 4, as: UInt16.self),
                length >= headerLength, length <= rest.count
            else { return events + [.lost] }
            let body = rest.prefix(Int(length)).dropFirst(headerLength)
            if let event = NetworkEvent(type: Int(type), body: body) { events.append(event) }
            rest = rest.dropFirst(aligned(Int(length)))
        }
        return events
    }

    /// The length of `nlmsghdr` in bytes.
    private static let headerLength = 16

    /// Creates the event of a message; `nil` if the message concerns no connection to other machines.
    private init?(type: Int, body: ArraySlice<UInt8>) {
        switch type {
        case Int(RTM_NEWLINK), Int(RTM_DELLINK):
            self.init(link: body, isRemoval: type == Int(RTM_DELLINK))
        case Int(RTM_NEWADDR), Int(RTM_DELADDR):
            self.init(address: body, isRemoval: type == Int(RTM_DELADDR))
        case Int(RTM_NEWROUTE), Int(RTM_DELROUTE):
            self.init(route: body, isRemoval: type == Int(RTM_DELROUTE))
        default:
            return nil
        }
    }

    /// Reads an `ifinfomsg`.
    private init?(link body: ArraySlice<UInt8>, isRemoval: Bool) {
        guard let family = body.integer(at: 0, as: UInt8.self),
            let index = body.integer(at: 4, as: UInt32.self),
            let flags = body.integer(at: 8, as: UInt32.self)
        else {
            self = .lost
            return
        }
        // Messages of other families are those of bridges about their ports: a link that leaves a bridge still exists.
        guard family == 0 else { return nil }
        self = isRemoval ? .removedLink(index) : .link(index, isRunning: stage_link_runs(flags))
    }

    /// Reads an `ifaddrmsg` with its attributes.
    private init?(address body: ArraySlice<UInt8>, isRemoval: Bool) {
        guard let flags = body.integer(at: 2, as: UInt8.self),
            let scope = body.integer(at: 3, as: UInt8.self), body.count >= 8
        else {
            self = .lost
            return
        }
        let isTentative = flags & UInt8(IFA_F_TENTATIVE) != 0
        guard UInt32(scope) < RT_SCOPE_LINK.rawValue, isRemoval || !isTentative else { return nil }
        // Family, length of the prefix, and link.
        var fields: [UInt8] = [Self.addressMark]
        fields += body.prefix(2)
        fields += body.dropFirst(4).prefix(4)
        let types = [UInt16(IFA_ADDRESS), UInt16(IFA_LOCAL)]
        fields += Self.attributes(types, of: body.dropFirst(8))
        self = isRemoval ? .removed(NetworkEntry(fields)) : .added(NetworkEntry(fields))
    }

    /// Reads an `rtmsg` with its attributes.
    private init?(route body: ArraySlice<UInt8>, isRemoval: Bool) {
        guard let type = body.integer(at: 7, as: UInt8.self), body.count >= 12 else {
            self = .lost
            return
        }
        guard Int(type) == Int(RTN_UNICAST) else { return nil }
        // Family, lengths of both prefixes, and type of service.
        var fields: [UInt8] = [Self.routeMark]
        fields += body.prefix(4)
        let types = [RTA_DST, RTA_SRC, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_TABLE]
        fields += Self.attributes(types.map { UInt16($0.rawValue) }, of: body.dropFirst(12))
        self = isRemoval ? .removed(NetworkEntry(fields)) : .added(NetworkEntry(fields))
    }

    /// First byte of an entry, which distinguishes addresses from routes.
    private static let addressMark: UInt8 = 1
    private static let routeMark: UInt8 = 2

    /// Returns the attributes with the given types, in the order of these types.
    private static func attributes(_ types: [UInt16], of list: ArraySlice<UInt8>) -> [UInt8] {
        var found: [UInt16: ArraySlice<UInt8>] = [:]
        var rest = list
        while let length = rest.integer(at: 0, as: UInt16.self),
            let type = rest.integer(at: 2, as: UInt16.self),
            length >= 4, length <= rest.count
        {
            found[type] = rest.prefix(Int(length))
            rest = rest.dropFirst(aligned(Int(length)))
        }
        return types.flatMap { found[$0] ?? [] }
    }

    /// Rounds the length of a message or an attribute up to its alignment.
    private static func aligned(_ length: Int) -> Int { (length + 3) & ~3 }
}

extension ArraySlice<UInt8> {
    /// Returns the integer at an offset, in the machine's byte order; `nil` if it exceeds the bytes.
    fileprivate func integer<Value: FixedWidthInteger & UnsignedInteger>(
        at offset: Int,
        as type: Value.Type
    ) -> Value? {
        let bytes = dropFirst(offset).prefix(MemoryLayout<Value>.size)
        guard bytes.count == MemoryLayout<Value>.size else { return nil }
        var value: Value = 0
        for byte in bytes.reversed() { value = value << 8 | Value(byte) }
        return Value(littleEndian: value)
    }
}

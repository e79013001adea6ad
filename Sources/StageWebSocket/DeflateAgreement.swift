/// Compression of one direction of a connection.
public struct DeflateDirection: Hashable, Sendable {
    /// Base-2 logarithm of the window size, 8 to 15.
    public var windowBits: Int
    /// `true` if a message may refer to the ones before it.
    public var allowsContextTakeover: Bool

    /// Creates the settings of a direction; by default with the largest window, and with context takeover.
    public init(windowBits: Int = 15, allowsContextTakeover: Bool = true) {
        self.windowBits = windowBits
        self.allowsContextTakeover = allowsContextTakeover
    }
}

/// Parameters of permessage-deflate that client and server agreed on (RFC 7692, section 7.1).
public struct DeflateAgreement: Hashable, Sendable {
    /// Compression of the client's messages.
    public var client: DeflateDirection
    /// Compression of the server's messages.
    public var server: DeflateDirection

    /// Creates an agreement; by default with the largest windows, and with context takeover.
    public init(
        client: DeflateDirection = DeflateDirection(),
        server: DeflateDirection = DeflateDirection()
    ) {
        self.client = client
        self.server = server
    }

    static let name = "permessage-deflate"

    /// Value of the `Sec-WebSocket-Extensions` field by which a client offers at most these parameters.
    ///
    /// The server may limit the window of the client in any case.
    var offer: String {
        var parameters = [Self.name]
        if !server.allowsContextTakeover { parameters.append("server_no_context_takeover") }
        if !client.allowsContextTakeover { parameters.append("client_no_context_takeover") }
        if server.windowBits < 15 {
            parameters.append("server_max_window_bits=\(server.windowBits)")
        }
        let bits = client.windowBits < 15 ? "=\(client.windowBits)" : ""
        parameters.append("client_max_window_bits\(bits)")
        return parameters.joined(separator: "; ")
    }

    /// Parses a server's response to ``offer``; `nil` for no extension.
    static func read(
        answer: HTTPHead,
        to offer: DeflateAgreement?
    ) throws(WebSocketError) -> DeflateAgreement? {
        let extensions = try ExtensionElement.read(answer.values(of: "Sec-WebSocket-Extensions"))
        guard let element = extensions.first else { return nil }
        guard let offer, extensions.count == 1, element.name == name,
            let parameters = DeflateParameters(element)
        else { throw .handshake(.extensions) }
        var agreement = offer
        if parameters.serverNoContextTakeover { agreement.server.allowsContextTakeover = false }
        if parameters.clientNoContextTakeover { agreement.client.allowsContextTakeover = false }
        // The response must confirm the client's requirements for the server (RFC 7692, sections 7.1.1.1 and
        // 7.1.2.1).
        guard offer.server.allowsContextTakeover || parameters.serverNoContextTakeover else {
            throw .handshake(.extensions)
        }
        switch parameters.serverBits {
        case .value(let bits):
            guard bits <= offer.server.windowBits else { throw .handshake(.extensions) }
            agreement.server.windowBits = bits
        case .bare: throw .handshake(.extensions)
        case nil:
            guard offer.server.windowBits == 15 else { throw .handshake(.extensions) }
        }
        switch parameters.clientBits {
        case .value(let bits): agreement.client.windowBits = min(bits, offer.client.windowBits)
        case .bare: throw .handshake(.extensions)
        case nil: break
        }
        return agreement
    }

    /// Accepts the first acceptable offer of a client, and returns it with the value of the response's field.
    ///
    /// The server uses at most `preference`; the values of `offers` must be lists of extensions.
    static func accept(
        offers: [String],
        preference: DeflateAgreement
    ) throws(WebSocketError) -> (DeflateAgreement, answer: String)? {
        for element in try ExtensionElement.read(offers) where element.name == name {
            guard let parameters = DeflateParameters(element) else { continue }
            var agreement = preference
            var answer = [name]
            if parameters.serverNoContextTakeover || !preference.server.allowsContextTakeover {
                agreement.server.allowsContextTakeover = false
                answer.append("server_no_context_takeover")
            }
            if parameters.clientNoContextTakeover || !preference.client.allowsContextTakeover {
                agreement.client.allowsContextTakeover = false
                answer.append("client_no_context_takeover")
            }
            if case .bare = parameters.serverBits { continue }
            if case .value(let bits) = parameters.serverBits {
                agreement.server.windowBits = min(bits, preference.server.windowBits)
            }
            if agreement.server.windowBits < 15 {
                answer.append("server_max_window_bits=\(agreement.server.windowBits)")
            }
            switch parameters.clientBits {
            case nil: agreement.client.windowBits = 15
            case .bare: break
            case .value(let bits):
                agreement.client.windowBits = min(bits, preference.client.windowBits)
            }
            if parameters.clientBits != nil, agreement.client.windowBits < 15 {
                answer.append("client_max_window_bits=\(agreement.client.windowBits)")
            }
            return (agreement, answer.joined(separator: "; "))
        }
        return nil
    }
}

/// Parameters of one offer or response of permessage-deflate.
private struct DeflateParameters {
    enum Bits {
        case bare
        case value(Int)
    }

    var serverNoContextTakeover = false
    var clientNoContextTakeover = false
    var serverBits: Bits?
    var clientBits: Bits?

    /// Parses the parameters; `nil` if one is unknown, repeated or has an invalid value.
    init?(_ element: ExtensionElement) {
        var names: Set<String> = []
        for (name, value) in element.parameters {
            guard names.insert(name).inserted else { return nil }
            switch name {
            case "server_no_context_takeover" where value == nil: serverNoContextTakeover = true
            case "client_no_context_takeover" where value == nil: clientNoContextTakeover = true
            case "server_max_window_bits", "client_max_window_bits":
                var bits = Bits.bare
                if let value {
                    guard value.count <= 2, value.first != "0", let number = Int(value),
                        (8...15).contains(number)
                    else { return nil }
                    bits = .value(number)
                }
                if name.hasPrefix("server") { serverBits = bits } else { clientBits = bits }
            default: return nil
            }
        }
    }
}

/// One element of a `Sec-WebSocket-Extensions` field (RFC 6455, section 9.1).
private struct ExtensionElement {
    var name: String
    var parameters: [(name: String, value: String?)] = []

    /// Parses all elements of the values of a field.
    static func read(_ values: [String]) throws(WebSocketError) -> [ExtensionElement] {
        var elements: [ExtensionElement] = []
        for value in values {
            for text in value.split(separator: ",") where !text.trimmingSpaces.isEmpty {
                let parts = text.split(separator: ";", omittingEmptySubsequences: false)
                    .map { $0.trimmingSpaces }
                guard parts[0].isToken else { throw .handshake(.extensions) }
                var element = ExtensionElement(name: parts[0].lowercased())
                for part in parts.dropFirst() { element.parameters.append(try parameter(part)) }
                elements.append(element)
            }
        }
        return elements
    }

    private static func parameter(
        _ text: Substring
    ) throws(WebSocketError) -> (name: String, value: String?) {
        let sides = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            .map { $0.trimmingSpaces }
        guard let name = sides.first, name.isToken else { throw .handshake(.extensions) }
        guard sides.count == 2 else { return (name.lowercased(), nil) }
        var value = sides[1]
        if value.count >= 2, value.hasPrefix("\""), value.hasSuffix("\"") {
            value = value.dropFirst().dropLast()
        }
        // A quoted value must be a token, too.
        guard value.isToken else { throw .handshake(.extensions) }
        return (name.lowercased(), String(value))
    }
}

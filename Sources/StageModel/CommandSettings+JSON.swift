extension CommandSettings {
    /// Parses a configuration file; its members may be missing or `null`.
    ///
    /// - Throws: ``ManifestError`` for the first member that is unknown or has an invalid value.
    public init(json: [UInt8]) throws(ManifestError) {
        let document = try ManifestError.decode(Document.self, from: json, limit: Self.byteLimit)
        self = document.settings
    }

    private struct Document: JSONReadable {
        var settings: CommandSettings

        init(reading node: JSONNode) throws(ManifestError) {
            settings = try CommandSettings(members: node)
        }
    }

    private enum Key: String, CodingKey, CaseIterable {
        case httpProxy, httpsProxy, proxyExceptions, certificateAuthorities, bandwidth
        case hookTimeLimit = "hookDeadline"
        case updateConditions
    }

    private init(members node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        try members.checkForUnknownMembers()
        func text(_ key: Key) throws(ManifestError) -> String? {
            guard members.has(key) else { return nil }
            return try members.text(key, as: Self.checkedText)
        }
        self.init()
        func proxy(_ key: Key) throws(ManifestError) -> String? {
            guard members.has(key) else { return nil }
            return try members.text(key, as: Self.checkedProxy)
        }
        httpProxy = try proxy(.httpProxy)
        httpsProxy = try proxy(.httpsProxy)
        proxyExceptions = try text(.proxyExceptions)
        if members.has(.certificateAuthorities) {
            certificateAuthorities = try members.text(
                .certificateAuthorities,
                as: AbsolutePath.checked
            )
        }
        if members.has(.bandwidth) { bandwidth = try Self.rate(members) }
        if members.has(.hookTimeLimit) {
            hookTimeLimit = .seconds(try members.number(.hookTimeLimit, in: 0...1_000_000_000))
        }
        if members.has(.updateConditions) {
            let conditions = try members.node(.updateConditions, expected: "an object")
            try UpdateConditions.checkMembers(of: conditions)
            updateConditions = try UpdateConditions(reading: conditions)
        }
    }

    /// Returns the rate of the member `bandwidth`: a number of bytes, or a text as the option takes it.
    private static func rate(_ members: JSONMembers<Key>) throws(ManifestError) -> ByteCount {
        let node = try members.node(.bandwidth, expected: "a rate")
        guard let text = node.string else {
            return ByteCount(try members.number(.bandwidth, in: 1...(1 << 62) - 1))
        }
        guard let rate = ByteCount(parsing: text), rate > .zero else {
            throw node.fault(
                ValueError(expected: "a rate such as '500kB', '4MB' or '4MiB'", text: text)
            )
        }
        return rate
    }

    private static func checkedText(_ text: String) throws(ValueError) -> String {
        guard text.utf8.count <= ManifestLimits.pathLength,
            !text.unicodeScalars.contains(where: \.isUnsafeForDisplay)
        else {
            throw ValueError(
                expected: "a text of at most \(ManifestLimits.pathLength) bytes",
                text: text
            )
        }
        return text
    }

    private static func checkedProxy(_ text: String) throws(ValueError) -> String {
        try ProxyAddress.check(text)
        return text
    }
}

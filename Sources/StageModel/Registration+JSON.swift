extension Registration {
    /// Parses a registration.
    ///
    /// Ignores unknown members; optional members may be `null`.
    ///
    /// - Throws: ``ManifestError`` for the first member that violates a rule of the format or of
    ///   ``ManifestLimits``. With transport trust, a plain http URL of another host violates a rule.
    public init(json: [UInt8]) throws(ManifestError) {
        let document = try ManifestError.decode(
            Document.self,
            from: json,
            limit: ManifestLimits.registrationByteCount
        )
        self = document.registration
    }

    /// Returns the registration as JSON: indented, members sorted by name.
    public func json() -> [UInt8] { ManifestError.encode(Document(registration: self)) }

    private struct Document: JSONReadable, Encodable {
        var registration: Registration

        init(registration: Registration) { self.registration = registration }

        init(reading node: JSONNode) throws(ManifestError) {
            registration = try Registration(members: node)
        }

        func encode(to encoder: any Encoder) throws { try registration.encode(members: encoder) }
    }

    /// The names of the members, for ``misspeltMembers(in:)``.
    static let memberNames = MemberNames(
        Key.self,
        nested: [
            .trust: Trust.Document.memberNames, .restrictions: Restrictions.Document.memberNames,
            .downloaderExtension: Program.Document.memberNames,
            .backgroundEventsHandler: Program.Document.memberNames,
            .updateConditions: UpdateConditions.memberNames,
        ]
    )

    private enum Key: String, CodingKey, CaseIterable {
        case registrationVersion, application, version, applicationGroup, manifestURLs, trust
        case restrictions, quota, downloaderExtension, backgroundEventsHandler, updateConditions
        case manifestFormat
    }

    private init(members node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        let version = try members.number(.registrationVersion, in: .min ... .max)
        try ManifestError.check(version: version, known: Self.formatVersion)
        self.init(
            application: try members.text(.application) { text throws(ValueError) in
                try ApplicationID(text)
            },
            version: try members.text(.version) { text throws(ValueError) in
                try Self.checkVersion(text)
                return text
            },
            group: try members.text(.applicationGroup) { text throws(ValueError) in
                try ApplicationGroupID(text)
            },
            manifestURLs: try members.strings(.manifestURLs, atMost: ManifestLimits.manifestURLs),
            trust: try members.value(
                Trust.Document.self,
                for: .trust,
                expected: Trust.Document.expected
            ).trust
        )
        try checkManifestURLs(members)
        if members.has(.restrictions) {
            restrictions = try members.value(Restrictions.Document.self, for: .restrictions)
                .restrictions
        }
        if members.has(.quota) { quota = try Self.quota(members) }
        func program(_ key: Key) throws(ManifestError) -> Program? {
            guard members.has(key) else { return nil }
            return try members.value(Program.Document.self, for: key).program
        }
        downloaderExtension = try program(.downloaderExtension)
        backgroundEventsHandler = try program(.backgroundEventsHandler)
        if members.has(.manifestFormat) { try readFormat(members) }
        if members.has(.updateConditions) {
            updateConditions = try members.value(UpdateConditions.self, for: .updateConditions)
        }
    }

    private mutating func readFormat(_ members: JSONMembers<Key>) throws(ManifestError) {
        manifestFormat = try members.text(.manifestFormat) { text throws(ValueError) in
            guard let format = ManifestFormat(rawValue: text) else {
                throw ValueError(expected: "'stagepack' or 'application'", text: text)
            }
            return format
        }
        guard manifestFormat == .stagepack || downloaderExtension != nil else {
            let expected = "a downloaderExtension that reads a manifest of the application's format"
            throw members.fault(
                for: .downloaderExtension,
                ValueError(expected: expected, found: "none")
            )
        }
    }

    private static func checkVersion(_ text: String) throws(ValueError) {
        guard (1...ManifestLimits.versionLength).contains(text.utf8.count),
            !text.unicodeScalars.contains(where: { $0.isUnsafeForDisplay || $0 == " " })
        else { throw ValueError(expected: "a version such as '2.4.1'", text: text) }
    }

    /// Returns the quota: a number of bytes, or a text as `gc --quota` takes it.
    private static func quota(_ members: JSONMembers<Key>) throws(ManifestError) -> ByteCount {
        let node = try members.node(.quota, expected: "a size")
        guard let text = node.string else {
            return ByteCount(try members.number(.quota, in: 0...Int.max))
        }
        guard let size = ByteCount(parsing: text) else {
            throw node.fault(
                ValueError(expected: "a size such as '500MB', '20GB' or '20GiB'", text: text)
            )
        }
        return size
    }

    private func checkManifestURLs(_ members: JSONMembers<Key>) throws(ManifestError) {
        guard !manifestURLs.isEmpty else {
            throw members.fault(
                for: .manifestURLs,
                ValueError(
                    expected: "1 to \(ManifestLimits.manifestURLs) URLs",
                    found: members.has(.manifestURLs) ? "none" : members.found(.manifestURLs)
                )
            )
        }
        try members.check(manifestURLs, of: .manifestURLs) { url throws(ValueError) in
            try URLReference.check(url, form: .absolute)
            guard trust != .transport || ManifestTrust.isAcceptable(url) else {
                throw ValueError(expected: "an https URL, or a root of trust", text: url)
            }
        }
    }

    private func encode(members encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(Self.formatVersion, forKey: .registrationVersion)
        try container.encode(application, forKey: .application)
        try container.encode(version, forKey: .version)
        try container.encode(group, forKey: .applicationGroup)
        try container.encode(manifestURLs, forKey: .manifestURLs)
        try container.encode(Trust.Document(trust: trust), forKey: .trust)
        try container.encodeIfPresent(
            restrictions.map(Restrictions.Document.init),
            forKey: .restrictions
        )
        try container.encodeIfPresent(quota, forKey: .quota)
        try container.encodeIfPresent(
            downloaderExtension.map(Program.Document.init),
            forKey: .downloaderExtension
        )
        try container.encodeIfPresent(
            backgroundEventsHandler.map(Program.Document.init),
            forKey: .backgroundEventsHandler
        )
        if manifestFormat != .stagepack {
            try container.encode(manifestFormat.rawValue, forKey: .manifestFormat)
        }
        if updateConditions != UpdateConditions() {
            try container.encode(updateConditions, forKey: .updateConditions)
        }
    }

    /// Checks a file path, absolute or relative to the registration's directory.
    fileprivate static func checkFile(_ text: String) throws(ValueError) {
        guard !text.isEmpty, text.utf8.last != UInt8(ascii: "/"),
            text.utf8.count <= ManifestLimits.pathLength,
            !text.unicodeScalars.contains(where: \.isUnsafeForDisplay)
        else {
            throw ValueError(
                expected: "the path of a file, of at most \(ManifestLimits.pathLength) bytes",
                text: text
            )
        }
    }
}

extension Registration.Trust {
    fileprivate struct Document: JSONReadable, Encodable {
        var trust: Registration.Trust

        static let expected = "'transport' or an object"

        private enum Key: String, CodingKey, CaseIterable { case root }

        static let memberNames = MemberNames(Key.self)

        private enum RootKey: String, CodingKey { case signatures, signed }

        init(trust: Registration.Trust) { self.trust = trust }

        init(reading node: JSONNode) throws(ManifestError) {
            switch node.value {
            case .string("transport"):
                trust = .transport
            case .string(let text):
                throw node.fault(ValueError(expected: Self.expected, text: text))
            case .object:
                let members = try JSONMembers(node, keyedBy: Key.self)
                trust = try Self.root(members)
            default:
                throw node.fault(ValueError(expected: Self.expected, found: node.value.noun))
            }
        }

        private static func root(
            _ members: JSONMembers<Key>
        ) throws(ManifestError) -> Registration.Trust {
            let node = try members.node(.root, expected: "the path of a file, or root metadata")
            switch node.value {
            case .string(let path):
                do throws(ValueError) {
                    try Registration.checkFile(path)
                } catch {
                    throw node.fault(error)
                }
                return .root(path: path)
            case .object:
                let root = try JSONMembers(node, keyedBy: RootKey.self)
                let signatures = try root.node(.signatures, expected: "an array")
                guard signatures.elements != nil else {
                    throw signatures.fault(
                        ValueError(expected: "an array", found: signatures.value.noun)
                    )
                }
                _ = try JSONMembers(root.node(.signed, expected: "an object"), keyedBy: Key.self)
                return .inlineRoot(json: node.value.text)
            default:
                throw node.fault(
                    ValueError(
                        expected: "the path of a file, or root metadata",
                        found: node.value.noun
                    )
                )
            }
        }

        func encode(to encoder: any Encoder) throws {
            switch trust {
            case .transport:
                var container = encoder.singleValueContainer()
                try container.encode("transport")
            case .root(let path):
                var container = encoder.container(keyedBy: Key.self)
                try container.encode(path, forKey: .root)
            case .inlineRoot(let json):
                var container = encoder.container(keyedBy: Key.self)
                try container.encode(JSONValue(text: json) ?? .null, forKey: .root)
            }
        }
    }
}

extension Registration.Restrictions {
    fileprivate struct Document: JSONReadable, Encodable {
        var restrictions: Registration.Restrictions

        static let memberNames = MemberNames(Key.self)

        private enum Key: String, CodingKey, CaseIterable {
            case downloadAllowance, essentialDownloadAllowance
            case maxInstallSize, essentialMaxInstallSize
            case downloadDomainAllowList
        }

        init(restrictions: Registration.Restrictions) { self.restrictions = restrictions }

        init(reading node: JSONNode) throws(ManifestError) {
            let members = try JSONMembers(node, keyedBy: Key.self)
            func byteCount(_ key: Key) throws(ManifestError) -> ByteCount? {
                guard members.has(key) else { return nil }
                return ByteCount(try members.number(key, in: 0...Int.max))
            }
            restrictions = Registration.Restrictions()
            restrictions.downloadAllowance = try byteCount(.downloadAllowance)
            restrictions.essentialDownloadAllowance = try byteCount(.essentialDownloadAllowance)
            restrictions.maxInstallSize = try byteCount(.maxInstallSize)
            restrictions.essentialMaxInstallSize = try byteCount(.essentialMaxInstallSize)
            guard members.has(.downloadDomainAllowList) else { return }
            let domains = try members.strings(
                .downloadDomainAllowList,
                atMost: ManifestLimits.allowedDomains
            )
            try members.check(domains, of: .downloadDomainAllowList, check: Self.checkDomain)
            restrictions.downloadDomainAllowList = domains
        }

        private static func checkDomain(_ text: String) throws(ValueError) {
            let name = text.hasPrefix("*.") ? text.dropFirst(2) : text[...]
            let isName = name.utf8.allSatisfy { byte in
                switch byte {
                case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
                case UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"): true
                default: false
                }
            }
            guard isName, (1...253).contains(name.utf8.count), name.utf8.first != 0x2E else {
                throw ValueError(
                    expected: "a host name such as 'example.com' or '*.example.com'",
                    text: text
                )
            }
        }

        func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: Key.self)
            func encode(_ count: ByteCount?, for key: Key) throws {
                try container.encodeIfPresent(count, forKey: key)
            }
            try encode(restrictions.downloadAllowance, for: .downloadAllowance)
            try encode(restrictions.essentialDownloadAllowance, for: .essentialDownloadAllowance)
            try encode(restrictions.maxInstallSize, for: .maxInstallSize)
            try encode(restrictions.essentialMaxInstallSize, for: .essentialMaxInstallSize)
            try container.encodeIfPresent(
                restrictions.downloadDomainAllowList,
                forKey: .downloadDomainAllowList
            )
        }
    }
}

extension Registration.Program {
    fileprivate struct Document: JSONReadable, Encodable {
        var program: Registration.Program

        static let memberNames = MemberNames(Key.self)

        private enum Key: String, CodingKey, CaseIterable { case path, arguments }

        init(program: Registration.Program) { self.program = program }

        init(reading node: JSONNode) throws(ManifestError) {
            let members = try JSONMembers(node, keyedBy: Key.self)
            program = Registration.Program(
                path: try members.text(.path, as: AbsolutePath.checked),
                arguments: try members.strings(.arguments, atMost: ManifestLimits.arguments)
            )
            try members.check(program.arguments, of: .arguments) { text throws(ValueError) in
                guard text.utf8.count <= ManifestLimits.argumentLength, !text.utf8.contains(0)
                else {
                    let limit = ManifestLimits.argumentLength
                    throw ValueError(
                        expected:
                            "an argument of at most \(limit.quantity(of: "byte")) without zero bytes",
                        text: text
                    )
                }
            }
        }

        func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: Key.self)
            try container.encode(program.path, forKey: .path)
            if !program.arguments.isEmpty {
                try container.encode(program.arguments, forKey: .arguments)
            }
        }
    }
}

extension ResponseHead {
    /// Returns the value of the only field of a name; `nil` if there are none or several.
    func value(of name: String) -> String? {
        let name = name.lowercased()
        let values = fields.filter { $0.name.lowercased() == name }
        return values.count == 1 ? values.first?.value : nil
    }

    /// Returns whether the head has a field of this name.
    func has(_ name: String) -> Bool {
        let name = name.lowercased()
        return fields.contains { $0.name.lowercased() == name }
    }

    /// Returns the value of the only field of a name without its parameters, which any structured field may have (RFC
    /// 9651, section 3.3).
    private func item(of name: String) -> Substring? {
        value(of: name).map { $0.prefix { $0 != ";" }.trimmingBlanks }
    }

    /// Returns the integer value of the only field of a name.
    func number(of name: String) -> Int64? {
        item(of: name).flatMap(ContentRange.number)
    }

    /// `true` for a 2xx status.
    var isSuccess: Bool { (200..<300).contains(status) }

    /// Interop version of the resumable upload draft.
    var uploadVersion: String? {
        item(of: "Upload-Draft-Interop-Version").map(String.init)
    }

    /// Value of the `Upload-Offset` field.
    var uploadOffset: Int64? { number(of: "Upload-Offset") }

    /// Value of the `Upload-Complete` field (RFC 9651, section 3.3.6: a Boolean).
    var isUploadComplete: Bool? {
        switch item(of: "Upload-Complete") {
        case "?1": true
        case "?0": false
        default: nil
        }
    }
}

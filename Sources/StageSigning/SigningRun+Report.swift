import StageTrust

extension SigningRun {
    /// Returns the state of the repository after publishing `plan`, if any; `before` is the root before that.
    func report(
        _ plan: RepositoryPlan?,
        published before: RootDocument?
    ) throws(SigningError) -> SigningReport {
        var report = SigningReport()
        report.hasSigned = hasSigned
        let published = plan?.root ?? before
        if let published {
            let now = RepositoryPlan(root: published)
            try now.read(files)
            let periods = published.content.periods
            for role in SigningRole.allCases {
                let document = role == .root ? published.document : now.current[role]
                guard let document else { continue }
                report.roles.append(
                    SigningReport.Role(
                        role: role,
                        version: document.version,
                        expires: document.expiry.description,
                        isNew: plan?.new.contains(role) ?? false,
                        isClose: periods.isClose(role, expiry: document.expiry, at: time),
                        isExpired: document.expiry <= time
                    )
                )
            }
        }
        let next = try files.draft(.root).map { document throws(SigningError) in
            try RootDocument(document, path: files.metadataPath)
        }
        for role in SigningRole.allCases {
            guard let document = try files.draft(role) ?? unsigned[role]
            else { continue }
            let roots = [published, next].compactMap(\.self)
            var deciding = roots
            if role != .root, let next {
                let isNext = Self.isComplete(next, after: published)
                deciding = [isNext ? next : published ?? next]
            }
            report.drafts.append(draft(role, document: document, under: roots, deciding: deciding))
        }
        return report
    }

    /// Describes a draft: signatures by keys of any of the roots, and missing keys of the deciding ones.
    private func draft(
        _ role: SigningRole,
        document: SignedDocument,
        under roots: [RootDocument],
        deciding: [RootDocument]
    ) -> SigningReport.Draft {
        var (signed, missing): ([String], [String]) = ([], [])
        var needed = 0
        for root in roots {
            let count = root.signatures(on: document, by: role)
            signed += count.valid.filter { !signed.contains($0) }
        }
        for root in deciding {
            let count = root.signatures(on: document, by: role)
            missing += count.missing.filter { !missing.contains($0) }
            if !count.isComplete { needed = max(needed, count.threshold - count.valid.count) }
        }
        return SigningReport.Draft(
            role: role,
            version: document.version,
            signed: signed,
            missing: missing,
            needed: needed
        )
    }
}
